import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { installCommand, missingTools } from '../local/tools.ts';

/**
 * Installs the tools of local mode that are missing: as root on Debian with apt, saying so; for an ordinary user it
 * prints the one command and lets `up` say what is not possible without them (D15).
 */
export async function installMissingTools(): Promise<void> {
  const missing = missingTools();
  if (missing.length === 0) {
    return;
  }
  const command = installCommand(missing);
  if (process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) {
    process.stderr.write(`sandgate: ${missing.join(', ')} missing; install with:\n  ${command}\n`);
    return;
  }
  process.stderr.write(`sandgate: installing ${missing.join(', ')} (${command}) …\n`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const stdio = ['ignore', 'ignore', 'inherit'] as const;
  spawnSync('apt-get', ['update'], { env, stdio: [...stdio] });
  const done = spawnSync('/bin/sh', ['-c', command.replace(/^sudo /, '').replace('install', 'install -y')], {
    env,
    stdio: [...stdio],
  });
  if (done.status !== 0 || missingTools().length > 0) {
    process.stderr.write(`sandgate: the tools could not be installed; run by hand:\n  ${command}\n`);
  }
}
