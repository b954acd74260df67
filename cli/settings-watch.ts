import { canonicalJson } from '../base/canonical.ts';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Layout } from '../local/layout.ts';
import { readSettings, type Settings } from '../local/settings.ts';

/** How often the settings file is read again, milliseconds. */
const POLL_MS = 1000;

/** Settings that are read once, at the start; the others take effect while the plane runs. */
const AT_START = ['domain', 'trust', 'resolver', 'shortIds'] as const;

/**
 * Reports, each once, what is wrong with the settings file while the plane runs, that it is right again, and that an
 * edit takes effect only with the next start. Gives a function that ends it.
 */
export function watchSettings(layout: Layout, atStart: Settings, logger: Logger): () => void {
  let said = '';
  const say = (text: string, tell: () => void) => {
    if (text !== said) {
      said = text;
      tell();
    }
  };
  const look = async () => {
    try {
      const waiting = changedSince(atStart, await readSettings(layout.dir));
      if (waiting.length > 0) {
        const fields = { file: layout.settingsFile, settings: waiting };
        say(waiting.join(), () => logger.warn(fields, 'these settings take effect with the next start'));
      } else {
        say('', () => logger.info({ file: layout.settingsFile }, 'the settings are right again'));
      }
    } catch (error) {
      const text = errorText(error);
      say(text, () => logger.error({ file: layout.settingsFile }, `${text}; the last good settings stay in force`));
    }
  };
  const timer = setInterval(() => void look(), POLL_MS);
  return () => clearInterval(timer);
}

function changedSince(before: Settings, now: Settings): readonly string[] {
  return AT_START.filter((key) => canonicalJson(before[key]) !== canonicalJson(now[key]));
}
