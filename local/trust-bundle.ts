import { chmod, readFile } from 'node:fs/promises';
import { rootCertificates } from 'node:tls';
import { replacePrivate } from '../identity/files.ts';

/** Where distributions keep the public roots, by preference. */
const SYSTEM_BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/** The public roots in PEM: the machine's, else those that Node brings. */
export async function publicRoots(): Promise<string> {
  for (const file of SYSTEM_BUNDLES) {
    const pem = await readFile(file, 'utf8').catch(() => '');
    if (pem.includes('BEGIN CERTIFICATE')) {
      return pem;
    }
  }
  return rootCertificates.join('\n');
}

/** Writes `ca-bundle.pem`: public roots and the interception CA, the one file of the plane that a sandbox sees (D21). */
export async function writeTrustBundle(path: string, interceptionCaPem: string): Promise<void> {
  await replacePrivate(path, `${(await publicRoots()).trimEnd()}\n${interceptionCaPem.trimEnd()}\n`);
  // The sandbox's user is another one than ours; who else could read it is kept out by the folder.
  await chmod(path, 0o644);
}
