import { Agent, request } from 'node:http';
import { systemClock } from '../../base/clock.ts';
import { CodedError, errorText } from '../../base/errors.ts';
import { runSandboxController } from '../../controller/sandbox.ts';
import { findEnvoy } from '../../envoy/find.ts';
import { openPki } from '../../identity/pki-directory.ts';
import { runNodeAgent } from '../../local/node-agent.ts';
import { attachNode } from '../../local/node-namespace.ts';
import { followSettings, runRole } from './role.ts';

/** The lifecycle controllers and the node agent of a local directory, in one process (D32). */
export async function controllerRole(options: { readonly dir?: string }): Promise<void> {
  await runRole('controller', options, async ({ layout, settings, store, logger, ready }) => {
    const node = await attachNode(layout);
    const abort = new AbortController();
    const agentOfPlane = new Agent();
    let current = settings;
    const agent = runNodeAgent({
      store,
      layout,
      node,
      pki: await openPki(layout.pki),
      settings: () => current,
      envoyPath: await findEnvoy(),
      logger: logger.child({ part: 'node-agent' }),
      signal: abort.signal,
    });
    const controller = runSandboxController({
      store,
      clock: systemClock,
      logger,
      settings: { shortIds: settings.shortIds },
      withdrawal: (uid) => withdraw(agentOfPlane, layout.socket('control-plane'), uid),
      signal: abort.signal,
    });
    const stopFollowing = followSettings(layout, (fresh) => {
      current = fresh;
    });
    const failed = (part: string) => (error: unknown) => {
      logger.error({ part, error: errorText(error) }, 'a part of the controller ended');
      process.exit(1);
    };
    agent.catch(failed('node-agent'));
    controller.catch(failed('controller'));
    ready();
    return async () => {
      stopFollowing();
      abort.abort();
      await Promise.all([agent, controller]);
      agentOfPlane.destroy();
    };
  });
}

/** Asks the control plane whether no gateway leads to the sandbox any more (D12). */
async function withdraw(agent: Agent, socketPath: string, uid: string): Promise<void> {
  const status = await new Promise<number | undefined>((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    const call = request({ agent, socketPath, method: 'POST', path: '/withdrawn', headers }, (answer) => {
      answer.once('error', reject);
      answer.resume().once('end', () => resolve(answer.statusCode));
    });
    call.once('error', reject);
    call.end(JSON.stringify({ uid }));
  });
  if (status !== 200) {
    throw new CodedError('unavailable', `the control plane answered ${status}`);
  }
}
