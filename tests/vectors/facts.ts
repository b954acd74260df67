import type { DecisionRequest } from '../../api/decision.ts';
import type { PolicyFacts, PolicyObject, PolicyRecord, SandboxFacts } from '../../api/facts.ts';
import { canonicalFqdn } from '../../api/http-rules.ts';
import { kindNamed } from '../../api/kinds.ts';
import { type KubeObject, refOf, refText } from '../../api/object.ts';
import type { SecurityProfileSpec } from '../../api/security-profile.ts';
import type { TrafficPolicySpec } from '../../api/traffic-policy.ts';
import { validateObject } from '../../api/validate.ts';

/** Builders of facts, objects and requests for the tests of what a policy means. */

export const API_VERSION = 'agents.kruise.io/v1alpha1';

/** What {@link factsOf} takes; everything else of the facts is made from it. */
export interface World {
  readonly sandboxes?: readonly SandboxFacts[];
  readonly objects?: readonly KubeObject[];
  readonly hosts?: PolicyFacts['hosts'];
  readonly services?: PolicyFacts['services'];
  readonly pods?: PolicyFacts['pods'];
  readonly secretKeys?: PolicyFacts['secretKeys'];
  /** Names with a virtual address though no policy lists them. */
  readonly otherNames?: readonly string[];
}

/** The default caller of the vectors. */
export const SANDBOX: SandboxFacts = {
  uid: 'uid-1',
  namespace: 'team-a',
  name: 'sbx-1',
  labels: { app: 'agent', tier: 'gold' },
  addresses: ['10.244.1.5'],
};

/** Facts as the world would build them: objects defaulted, invalid ones without a form in force, names numbered. */
export function factsOf(world: World): PolicyFacts {
  const policies = (world.objects ?? []).map(recordOf);
  const invalid = (world.objects ?? []).filter((object) => validateObject(object).invalid.length > 0);
  const hosts = world.hosts ?? {};
  const names = new Set([...Object.keys(hosts), ...policies.flatMap(namesOf), ...(world.otherNames ?? [])]);
  return {
    sandboxes: world.sandboxes ?? [SANDBOX],
    policies,
    services: world.services ?? [],
    pods: world.pods ?? [],
    invalidSpecs: Object.fromEntries(invalid.map((object) => [refText(refOf(object)), object.spec])),
    secretKeys: world.secretKeys ?? {},
    hosts,
    virtualAddresses: Object.fromEntries([...names].sort().map((name, index) => [name, virtualAddress(index)])),
    rootNamespace: 'sandbox-system',
  };
}

/** The virtual address of a name; throws when the facts have none. */
export function virtual(facts: PolicyFacts, name: string): string {
  const address = facts.virtualAddresses[name];
  if (address === undefined) {
    throw new Error(`${name} has no virtual address`);
  }
  return address;
}

function virtualAddress(index: number): string {
  return `240.1.${Math.floor(index / 250)}.${(index % 250) + 1}`;
}

function recordOf(object: KubeObject): PolicyRecord {
  const errors = validateObject(object).invalid;
  return {
    ref: refOf(object),
    created: object.metadata.creationTimestamp ?? '',
    generation: object.metadata.generation ?? 1,
    inForce: errors.length > 0 ? null : (kindNamed(object.kind)!.defaults(object) as unknown as PolicyObject),
    errors,
  };
}

/** Names that a policy lists, whoever it selects. */
function namesOf({ inForce }: PolicyRecord): readonly string[] {
  if (inForce?.spec === undefined) {
    return [];
  }
  if (inForce.kind.endsWith('TrafficPolicy')) {
    const peers = ((inForce.spec as TrafficPolicySpec).egress?.rules ?? []).flatMap((rule) => rule.to ?? []);
    return peers.flatMap(({ fqdn }) => (fqdn === undefined ? [] : [canonicalFqdn(fqdn)]));
  }
  const clauses = ((inForce.spec as SecurityProfileSpec).rules ?? []).flatMap((rule) => rule.match);
  return clauses.flatMap(({ domains }) => domains.filter((domain) => !/^\*(\.|$)/.test(domain)).map(canonicalFqdn));
}

interface Meta {
  readonly kind?: string;
  readonly name?: string;
  readonly namespace?: string;
  readonly priority?: number;
  readonly created?: string;
  readonly selector?: object;
}

function policyObject(meta: Meta, kind: string, spec: object): KubeObject {
  const global = (meta.kind ?? kind).startsWith('Global');
  return {
    apiVersion: API_VERSION,
    kind: meta.kind ?? kind,
    metadata: {
      name: meta.name ?? 'p',
      ...(global ? {} : { namespace: meta.namespace ?? 'team-a' }),
      ...(meta.created === undefined ? {} : { creationTimestamp: meta.created }),
    },
    spec: {
      selector: meta.selector ?? {},
      ...(meta.priority === undefined ? {} : { priority: meta.priority }),
      ...spec,
    },
  };
}

/** A TrafficPolicy (or Global, by `kind`) with these egress rules. */
export function traffic(rules: readonly object[], meta: Meta = {}): KubeObject {
  return policyObject(meta, 'TrafficPolicy', { egress: { rules } });
}

/** A SecurityProfile (or Global, by `kind`) with these rules; rules without a name are numbered. */
export function profile(rules: readonly object[], meta: Meta = {}): KubeObject {
  return policyObject(meta, 'SecurityProfile', { rules: rules.map((rule, index) => ({ name: `r${index}`, ...rule })) });
}

/** One rule: a clause (by default for every host) and its actions. */
export function rule(actions: object, ...clauses: readonly object[]): object {
  const all = clauses.length === 0 ? [{}] : clauses;
  return { match: all.map((clause) => ({ domains: ['*'], ...clause })), actions };
}

/** What {@link call} takes besides the URL. */
export interface Call {
  readonly method?: string;
  readonly headers?: readonly (readonly [string, string])[];
  readonly body?: string | Uint8Array;
  /** Connect here; by default to the name itself. */
  readonly to?: string;
  /** Host header, where it is not the URL's. */
  readonly host?: string;
  /** Server name, where it is not the URL's host. */
  readonly sni?: string;
  /** Destination port, where it is not the URL's. */
  readonly port?: number;
  readonly sandbox?: string;
}

/** A request to a URL (`http`, `https` or `tcp`) as the sandbox {@link SANDBOX} makes it. */
export function call(url: string, options: Call = {}): DecisionRequest {
  const [, scheme, authority, path] = /^(https?|tcp):\/\/([^/?]*)(.*)$/.exec(url)!;
  const [, host, writtenPort] = /^\[?(.*?)\]?(?::(\d+))?$/.exec(authority!)!;
  const port = options.port ?? Number(writtenPort ?? (scheme === 'https' ? 443 : 80));
  const isAddress = /^[\d.]+$|:/.test(host!);
  const to = options.to ?? (isAddress ? host! : null);
  const { body } = options;
  return {
    sandbox: options.sandbox ?? SANDBOX.uid,
    destination: to === null ? { kind: 'name', name: host!, port } : { kind: 'address', address: to, port },
    scheme: scheme as DecisionRequest['scheme'],
    ...(scheme === 'https' ? { sni: options.sni ?? host! } : {}),
    ...(scheme === 'tcp'
      ? {}
      : {
          http: {
            method: options.method ?? 'GET',
            authority: options.host ?? authority!,
            path: path === '' ? '/' : path!,
            headers: options.headers ?? [],
            ...(body === undefined ? {} : { body: typeof body === 'string' ? Buffer.from(body) : body }),
          },
        }),
  };
}
