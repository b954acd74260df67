import { readFile } from 'node:fs/promises';
import { canonicalAddress } from '../base/addresses.ts';

/** The first usable `nameserver` of the machine's resolv.conf; null when there is none. Asked over TCP. */
export async function machineResolver(
  file = '/etc/resolv.conf',
): Promise<{ readonly address: string; readonly port: number } | null> {
  const text = await readFile(file, 'utf8').catch(() => '');
  for (const line of text.split('\n')) {
    const address = canonicalAddress(/^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? '');
    if (address !== null) {
      return { address, port: 53 };
    }
  }
  return null;
}
