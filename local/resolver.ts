import { readFile } from 'node:fs/promises';
import { canonicalAddress } from '../base/addresses.ts';
import type { Settings } from './settings.ts';

/**
 * The resolver that is asked over TCP: the one of the settings, else the first usable `nameserver` of the machine's
 * resolv.conf; null when there is none.
 */
export async function resolverOf(settings: Settings, file = '/etc/resolv.conf'): Promise<Settings['resolver']> {
  if (settings.resolver !== null) {
    return settings.resolver;
  }
  const text = await readFile(file, 'utf8').catch(() => '');
  for (const line of text.split('\n')) {
    const address = canonicalAddress(/^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? '');
    if (address !== null) {
      return { address, port: 53 };
    }
  }
  return null;
}
