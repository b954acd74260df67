/** Run by `envoys.test.ts` in namespaces of its own: generated pairs through real Envoys, compared with `decide()`. */
import { execFileSync } from 'node:child_process';
import fc from 'fast-check';
import type { Decision, DecisionRequest } from '../../api/decision.ts';
import type { PolicyFacts } from '../../api/facts.ts';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { Stage } from '../policy-compiler/stage/stage.ts';
import { Upstreams } from '../policy-compiler/stage/upstreams.ts';
import { SANDBOX } from '../vectors/facts.ts';
import { agree } from './compare.ts';
import { explainer } from './explainer.ts';
import { factsOfScenario, type Scenario, scenarios } from './generate.ts';
import { type Draft, requestOf } from './generate-requests.ts';
import { bytesOf, expected, mismatch } from './outcome.ts';
import * as pools from './pools.ts';
import { SniffingUpstream } from './sniffing-upstream.ts';

const SEED = Number(process.env['SANDGATE_SEED'] ?? '1');
const WORLDS = Number(process.env['SANDGATE_WORLDS'] ?? '170');
const PER_WORLD = 24;
const LANES = 8;

const ORIGIN = '198.51.100.10';
const NAMES = [...pools.NAMES, ...pools.FREE_NAMES];
const SECRETS = { 'team-a/key': 'secret-of-team-a-key', 'team-b/key': 'secret-of-team-b-key' };

/** Addresses of the small worlds that this namespace can have; what is not here is not asked for. */
const PLACED = ['203.0.113.9', '203.0.113.10', '10.1.1.1', '10.1.1.2', '10.96.0.20', '10.96.0.21', '2001:db8::1'];

execFileSync('/bin/sh', [
  '-ec',
  `ip link set lo up; for a in ${ORIGIN}/32 ${PLACED.map((a) => (a.includes(':') ? `${a}/128` : `${a}/32`)).join(' ')}; do ip addr add $a dev lo; done`,
]);

interface Case {
  readonly request: DecisionRequest;
  readonly decision: Decision;
}

const METHODS = new Set(['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']);

/** A pair that a pod can carry out: over IPv4, with a method and an answer that HTTP/1.1 frames by length. */
function playable(request: DecisionRequest, { l7 }: Decision): boolean {
  const { destination, http } = request;
  const address = destination.kind === 'address' ? destination.address : '';
  const known =
    address.startsWith('240.') || address === ORIGIN || (PLACED.includes(address) && !address.includes(':'));
  const status = l7?.status ?? 403;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what cannot be in a request line or header is looked for
  const sendable = http === undefined || !/[\u0000-\u001f\u007f-\uffff ]/.test(http.path + http.authority);
  return (
    known &&
    sendable &&
    (http === undefined || METHODS.has(http.method)) &&
    status >= 200 &&
    status !== 204 &&
    status !== 304
  );
}

function factsFor(scenario: Scenario): PolicyFacts {
  return { ...factsOfScenario(scenario), sandboxes: [{ ...SANDBOX, addresses: ['10.244.0.2'] }] };
}

/** An unlisted name has the address that the resolver gives it. */
function resolved(request: DecisionRequest): DecisionRequest {
  const { destination } = request;
  return destination.kind === 'name'
    ? { ...request, destination: { kind: 'address', address: ORIGIN, port: destination.port } }
    : request;
}

function casesOf(facts: PolicyFacts, drafts: readonly Draft[]): readonly Case[] {
  const requests = drafts.map((draft) => resolved({ ...requestOf(facts, draft), sandbox: SANDBOX.uid }));
  return requests
    .map((request) => ({ request, decision: decide(facts, request) }))
    .filter(({ request, decision }) => playable(request, decision));
}

/** Requests over TLS to the names that have a virtual address in this world: most of them are intercepted. */
function namedDrafts(facts: PolicyFacts, index: number): readonly Draft[] {
  const paths = ['/', '/admin', '/v1/items', '/v1/items?id=7', '//admin'];
  return Object.keys(facts.virtualAddresses).flatMap((name, at) =>
    [0, 1, 2].map((turn) => ({
      sandbox: SANDBOX.uid,
      to: { name, by: 'virtual' },
      port: 443,
      scheme: 'https',
      sni: null,
      method: turn === 1 ? 'POST' : 'GET',
      authority: turn === 2 && at % 3 === 0 ? pools.NAMES[index % pools.NAMES.length]! : name,
      path: paths[(index + at + turn) % paths.length]!,
      headers: turn === 0 ? [] : [['x-a', '1']],
      body: '',
      gzip: false,
    })),
  );
}

async function play(stage: Stage, { request, decision }: Case): Promise<string | null> {
  const { destination, scheme, sni } = request;
  const address = destination.kind === 'address' ? destination.address : '';
  const kind = scheme === 'https' ? 'tls' : scheme;
  const answer = await stage.ask({
    kind,
    address,
    port: destination.port,
    send: bytesOf(request),
    ...(scheme === 'https' ? { sni: sni ?? '', ca: stage.mitmCaPem } : {}),
  });
  const why = mismatch(expected(decision), request, decision.tls, answer, SECRETS);
  return why === null ? null : `${why}: ${answer.slice(0, 300)}`;
}

const stage = await Stage.create(5300, SECRETS);
const names = new Upstreams();
await names.names(5300, Object.fromEntries(NAMES.map((name) => [name, ORIGIN])));
const upstream = new SniffingUpstream(stage.origins);
await upstream.listen([80, 443, 8080, 8443, 9000]);

const counts = { pairs: 0, tls: 0, processor: 0, forwarded: 0, denied: 0, closed: 0, disagreements: 0, worlds: 0 };
const failures: unknown[] = [];
const explain = explainer();
const sampled = fc.sample(scenarios, { seed: SEED, numRuns: WORLDS });
const allDrafts = fc.sample(scenarios, { seed: SEED + 1, numRuns: WORLDS * 4 }).flatMap(({ drafts }) => drafts);
let started = false;

for (const [index, scenario] of sampled.entries()) {
  const facts = factsFor(scenario);
  await stage.publish(facts, started);
  if (!started) {
    await stage.startGateway();
    await stage.startPod(SANDBOX.uid);
    started = true;
  }
  const others = Array.from({ length: PER_WORLD }, (_, at) => allDrafts[(index * PER_WORLD + at) % allDrafts.length]!);
  const cases = casesOf(facts, [...scenario.drafts, ...others, ...namedDrafts(facts, index)]);
  counts.worlds += 1;
  const queue = [...cases];
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        await one(facts, scenario, next);
      }
    }),
  );
  if (failures.length >= 20) {
    break;
  }
}

async function one(facts: PolicyFacts, scenario: Scenario, current: Case): Promise<void> {
  const { request, decision } = current;
  const explained = explain(facts, request) as Decision & { executor?: string };
  counts.pairs += 1;
  counts.tls += decision.tls === 'intercepted' ? 1 : 0;
  counts.processor += explained.executor === 'ext_proc' ? 1 : 0;
  const outcome = expected(decision).kind;
  counts.forwarded += outcome === 'forwarded' || outcome === 'through' ? 1 : 0;
  counts.denied += outcome === 'answered' ? 1 : 0;
  counts.closed += outcome === 'closed' ? 1 : 0;
  counts.disagreements += agree(explained, decision) ? 0 : 1;
  const why = await play(stage, current);
  if (why !== null && failures.length < 20) {
    const http =
      request.http === undefined
        ? undefined
        : { ...request.http, body: Buffer.from(request.http.body ?? []).toString('latin1') };
    failures.push({
      about: scenario.about,
      why,
      request: { ...request, http },
      decision,
      objects: scenario.objects,
      executor: explained.executor,
    });
  }
}

await stage.close();
upstream.close();
names.close();
process.stdout.write(JSON.stringify({ counts, failures, rejections: stage.rejections }));
process.exit(0);
