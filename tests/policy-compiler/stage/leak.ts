/** Run by `leak.test.ts` in namespaces of its own: 500 tunnels of two sandboxes at once, to the same destination. */
import { execFileSync } from 'node:child_process';
import { sandboxId } from '../../../identity/spiffe.ts';
import type { ResourceJson } from '../../../policy-compiler/output.ts';
import { SniffingUpstream } from '../../differential/sniffing-upstream.ts';
import { requestThrough, Tunnel } from '../../e2e/tunnel.ts';
import { Stage } from './stage.ts';
import { policy, sandbox, world } from './world.ts';

const NAME = 'api.example.com';
const SANDBOXES = ['alpha', 'beta'] as const;
const STREAMS = 500;

execFileSync('/bin/sh', ['-ec', 'ip link set lo up']);

/** What leaked identities when it was measured: filter state that the connection pool does not know. */
function unhashable(json: ResourceJson): ResourceJson {
  return JSON.parse(JSON.stringify(json).replaceAll('envoy.hashable_string', 'envoy.string')) as ResourceJson;
}

const stage = await Stage.create(5300, {});
if (process.env['SANDGATE_DAMAGE'] === 'unhashable') {
  stage.damage = unhashable;
}
const upstream = new SniffingUpstream(stage.origins);
await upstream.listen([8080]);

// The same names and the same TLS rules: one egress set, one internal cluster and one pool for both.
const facts = world({
  sandboxes: SANDBOXES.map((uid) => sandbox(uid, { app: uid })),
  hosts: { [NAME]: { address: '127.0.0.1' } },
  policies: SANDBOXES.map((app) =>
    policy('SecurityProfile', `team-a/${app}`, {
      selector: { matchLabels: { app } },
      rules: [
        {
          name: 'who',
          match: [{ domains: ['*'] }],
          actions: { headerManipulation: { set: [{ name: 'x-who', value: app }] } },
        },
      ],
    }),
  ),
});
await stage.publish(facts, false);
await stage.startGateway();
await stage.publish(facts);

const sets = new Set(SANDBOXES.map((uid) => stage.compilation.subjects.get(uid)!.egressSet));
const tokens = await stage.pki.tokens();
const identities = await Promise.all(
  SANDBOXES.map(async (uid) => {
    const certificate = await stage.pki.issueSidecarCertificate({ namespace: 'team-a', uid });
    const spiffeId = sandboxId({ namespace: 'team-a', uid });
    const { token } = await tokens.issue({ uid, pod: `pod-${uid}`, spiffeId });
    const tunnel = new Tunnel({ socketPath: stage.egressSocket, caPem: stage.pki.caPem, certificate });
    return { uid, tunnel, token: token.reveal() };
  }),
);

const answers = await Promise.all(
  Array.from({ length: STREAMS }, async (_, index) => {
    const { uid, tunnel, token } = identities[index % identities.length]!;
    const { status, stream } = await tunnel.open(`${facts.virtualAddresses[NAME]}:8080`, { 'x-sandbox-token': token });
    if (status !== 200) {
      return { uid, seen: `status ${status}` };
    }
    const { body } = await requestThrough(stream, NAME, `/${index}`);
    return { uid, seen: /"x-who":"(\w+)"/.exec(body)?.[1] ?? 'nothing' };
  }),
);
for (const { tunnel } of identities) {
  tunnel.close();
}
await stage.close();
upstream.close();
process.stdout.write(
  JSON.stringify({
    sets: sets.size,
    right: answers.filter(({ uid, seen }) => uid === seen).length,
    crossed: answers.filter(({ uid, seen }) => uid !== seen && SANDBOXES.includes(seen as 'alpha')).length,
    failed: answers.filter(({ seen }) => !SANDBOXES.includes(seen as 'alpha')).map(({ seen }) => seen),
  }),
);
process.exit(0);
