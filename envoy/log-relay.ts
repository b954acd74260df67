/** Envoy's own log, line by line, into the logger of this process, without what it must not tell. */
import { StringDecoder } from 'node:string_decoder';
import type { Logger } from '../base/logger.ts';

/** Envoy's `--log-format`: level letter and component, then the text; lines without the head continue the one before. */
export const LOG_FORMAT = '[[%L %n]] %v';

const HEAD = /^\[\[([A-Z]) ([^\]]*)\]\] ?(.*)$/;
const LEVELS: Readonly<Record<string, 'debug' | 'info' | 'warn' | 'error'>> = {
  W: 'warn',
  E: 'error',
  C: 'error',
};
const LONGEST_LINE = 4000;

/**
 * Refusing a resource, Envoy prints the whole of it, private keys and tokens included. Only the words before that are
 * kept; the reason reaches the plane as NACK, where it is cleaned with knowledge of the type.
 */
const RESOURCE_FOLLOWS = /(rejected: |goo\.gle\/debug|unable to (?:unpack|parse)).*$/i;

/** Takes chunks of Envoy's standard error; call `end` when the stream has ended. */
export interface LogRelay {
  write(chunk: Buffer): void;
  end(): void;
}

/** Relays to the logger with the field `envoy` for Envoy's component. Envoy's `info` is our `debug`. */
export function logRelay(logger: Logger): LogRelay {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  /** The level and component of the line that the next ones continue, or null when they are to be dropped. */
  let current: { level: 'debug' | 'info' | 'warn' | 'error'; envoy: string } | null = null;

  function line(text: string): void {
    const head = HEAD.exec(text);
    if (head === null) {
      if (current !== null && text.trim() !== '') {
        logger[current.level]({ envoy: current.envoy }, text.slice(0, LONGEST_LINE));
      }
      return;
    }
    const [, letter = '', envoy = '', message = ''] = head;
    const kept = message.replace(RESOURCE_FOLLOWS, '$1(left out)');
    current = { level: LEVELS[letter] ?? 'debug', envoy };
    logger[current.level]({ envoy }, kept.slice(0, LONGEST_LINE));
    if (kept !== message) {
      current = null;
    }
  }

  return {
    write(chunk) {
      const lines = (rest + decoder.write(chunk)).split('\n');
      rest = lines.pop()!;
      lines.forEach(line);
    },
    end() {
      if (rest !== '') {
        line(rest);
        rest = '';
      }
    },
  };
}
