import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { isCoded } from '../../base/errors.ts';
import { type AdsClient, copyOf } from './client.ts';
import { blockRule, ControlStage, sandboxObject, securityProfile, trafficPolicy, until } from './stage.ts';

/**
 * Sandboxes and policies come, change and go at random, also invalid ones. Whatever happened, a client that was there
 * all the time holds exactly what one that has just come is given.
 */
const churn = suite('churn');

const IS_LONG = process.env['SANDGATE_LONG'] === '1';
const SEED = Number(process.env['SANDGATE_SEED'] ?? 20_261_201);
const ROUNDS = IS_LONG ? 200 : 6;
const STEPS = 25;
const APPS = ['a', 'b', 'c'];
const NAMES = ['one.test', 'two.test', 'three.test', '*.wild.test'];

/** mulberry32: a small generator with a seed. */
function generator(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const random = generator(SEED);
const pick = <T>(list: readonly T[]): T => list[random(list.length)]!;

let stage: ControlStage;

churn.before(async () => {
  stage = await ControlStage.create();
  await stage.start();
});

churn.after(async () => {
  await stage?.close();
});

function rules(kind: 'TrafficPolicy' | 'SecurityProfile'): readonly object[] {
  if (random(6) === 0) {
    return [{ name: 'broken', nonsense: random(100) }];
  }
  return Array.from({ length: 1 + random(3) }, (_, index) =>
    kind === 'TrafficPolicy'
      ? {
          action: pick(['allow', 'allow', 'reject']),
          to: [random(2) === 0 ? { fqdn: pick(NAMES.slice(0, 3)) } : { cidr: `10.${random(4)}.0.0/16` }],
          ports: [{ port: 80 + random(3) }],
        }
      : { ...blockRule(pick(NAMES), `/${random(5)}`), name: `r${index}` },
  );
}

async function step(): Promise<void> {
  const name = `n${random(6)}`;
  const key = { namespace: 'default', name };
  switch (random(9)) {
    case 0:
    case 1: {
      const { metadata } = await stage.store.create(sandboxObject(name, { app: pick(APPS) }));
      await stage.pod(name, metadata.uid!);
      return;
    }
    case 2:
      return stage.store.delete('Sandbox', key); // Its Pod goes with it.
    case 3:
      return stage.store.delete(pick(['TrafficPolicy', 'SecurityProfile']), key);
    default: {
      const kind = pick(['TrafficPolicy', 'SecurityProfile'] as const);
      const make = kind === 'TrafficPolicy' ? trafficPolicy : securityProfile;
      const object = make(name, pick(APPS), rules(kind));
      const stored = await stage.store.get(kind, key).catch(() => null);
      await (stored === null ? stage.store.create(object) : stage.store.replace({ ...stored, spec: object.spec }));
    }
  }
}

/** A step that does not fit the present state (nothing to delete, already there) is no step. */
async function tryStep(): Promise<void> {
  try {
    await step();
  } catch (error) {
    if (!isCoded(error, 'not-found') && !isCoded(error, 'already-exists') && !isCoded(error, 'conflict')) {
      throw error;
    }
  }
}

/** Waits until nothing moves any more: world, statuses and clients. */
async function calm(): Promise<void> {
  let sequence = -1;
  let quiet = 0;
  await until('calm', 15_000, async () => {
    await new Promise((resolve) => setTimeout(resolve, 40));
    const now = stage.plane.plane.published!.sequence;
    quiet = now === sequence && stage.plane.clients().every(({ settled }) => settled >= now) ? quiet + 1 : 0;
    sequence = now;
    return quiet >= 8;
  });
}

function asText(client: AdsClient): Record<string, Record<string, string>> {
  const held = [...copyOf(client.held)].map(([type, names]): [string, Record<string, string>] => [
    type.split('.').at(-1)!,
    Object.fromEntries([...names].sort(([a], [b]) => (a < b ? -1 : 1))),
  ]);
  const filled = held.filter(([, names]) => Object.keys(names).length > 0);
  return Object.fromEntries(filled.sort(([a], [b]) => (a < b ? -1 : 1)));
}

churn(`seed ${SEED}: an old client and a new one hold the same, round after round`, async () => {
  const old = await stage.egress();
  for (let round = 0; round < ROUNDS; round += 1) {
    for (let index = 0; index < STEPS; index += 1) {
      await tryStep();
      if (random(4) === 0) {
        await new Promise((resolve) => setTimeout(resolve, random(20)));
      }
    }
    await calm();
    // Lingering removals.
    await until('removals', 5000, async () => {
      const fresh = await stage.egress();
      await until('a fresh client', 5000, () => stage.plane.clients().every(({ settled }) => settled > 0));
      await new Promise((resolve) => setTimeout(resolve, 150));
      const [was, is] = [asText(old), asText(fresh)];
      fresh.close();
      return JSON.stringify(was) === JSON.stringify(is);
    }).catch((error: unknown) => {
      throw new Error(`seed ${SEED}, round ${round}: ${String(error)}`);
    });
    const uids = new Set((await stage.store.list('Sandbox')).items.map(({ metadata }) => metadata.uid!));
    const scopes = old.names('type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration');
    const subjects = scopes.filter((name) => name.startsWith('i:')).map((name) => name.slice(2));
    assert.equal(subjects.sort(), [...uids].sort(), `seed ${SEED}, round ${round}`);
  }
  assert.equal(
    stage.log.filter((line) => !/a client refused/.test(line)),
    [],
  );
});

churn.run();
