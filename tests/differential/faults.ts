import type { DecisionRequest } from '../../api/decision.ts';
import type { PolicyFacts, PolicyObject, PolicyRecord } from '../../api/facts.ts';
import { refText } from '../../api/object.ts';
import type { MatchClause, SecurityProfileSpec, SecurityRule } from '../../api/security-profile.ts';
import type { TrafficPolicySpec, TrafficRule } from '../../api/traffic-policy.ts';
import { normalisedPath } from '../../policy-compiler/decide/http-view.ts';
import { traffic } from '../vectors/facts.ts';

/**
 * Mistakes that a compiler could make (D28), each as a change of what goes into it: a compiler that is right about the
 * changed world is wrong about the real one in exactly this way. The differential test has to notice every one.
 */
export interface Fault {
  readonly name: string;
  readonly facts?: (facts: PolicyFacts) => PolicyFacts;
  readonly request?: (request: DecisionRequest) => DecisionRequest;
}

function policies(facts: PolicyFacts, change: (record: PolicyRecord) => PolicyRecord): PolicyFacts {
  return { ...facts, policies: facts.policies.map(change) };
}

/** Changes the spec of every policy in force. */
function specs<S>(
  facts: PolicyFacts,
  kind: 'TrafficPolicy' | 'SecurityProfile' | '',
  change: (spec: S, record: PolicyRecord) => S,
) {
  return policies(facts, (record) => {
    const { inForce, ref } = record;
    if (inForce?.spec === undefined || !ref.kind.endsWith(kind)) {
      return record;
    }
    return { ...record, inForce: { ...inForce, spec: change(inForce.spec as S, record) } as PolicyObject };
  });
}

/** Changes the list of egress rules of every TrafficPolicy. */
const trafficRules = (change: (rules: readonly TrafficRule[]) => readonly TrafficRule[]) => (facts: PolicyFacts) =>
  specs<TrafficPolicySpec>(facts, 'TrafficPolicy', (spec) =>
    spec.egress === undefined ? spec : { ...spec, egress: { rules: change(spec.egress.rules ?? []) } },
  );

/** Changes the list of rules of every SecurityProfile. */
const profileRules =
  (change: (rules: readonly SecurityRule[], record: PolicyRecord) => readonly SecurityRule[]) => (facts: PolicyFacts) =>
    specs<SecurityProfileSpec>(facts, 'SecurityProfile', (spec, record) => ({
      ...spec,
      rules: change(spec.rules ?? [], record),
    }));

const clauses = (change: (clause: MatchClause) => MatchClause) =>
  profileRules((rules) => rules.map((rule) => ({ ...rule, match: rule.match.map(change) })));

const actions = (change: (actions: SecurityRule['actions'], record: PolicyRecord) => SecurityRule['actions']) =>
  profileRules((rules, record) => rules.map((rule) => ({ ...rule, actions: change(rule.actions, record) })));

/** Without some members; what is not there stays away. */
function without<T extends object>(value: T, ...names: readonly (keyof T)[]): T {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name as keyof T))) as T;
}

type Http = NonNullable<DecisionRequest['http']>;

const http = (change: (http: Http) => Http) => (request: DecisionRequest) =>
  request.http === undefined ? request : { ...request, http: change(request.http) };

/** The Host of a request without its port. */
const hostOf = ({ authority }: Http) => authority.replace(/:\d*$/, '').toLowerCase();

const everything = traffic([{ action: 'allow', to: [{ cidr: '0.0.0.0/0' }, { cidr: '::/0' }] }], {
  kind: 'GlobalTrafficPolicy',
  name: 'zz',
  priority: 999_999,
});

export const FAULTS: readonly Fault[] = [
  { name: 'dropped port', facts: trafficRules((rules) => rules.map((rule) => without(rule, 'ports'))) },
  {
    name: 'end of a port range lost',
    facts: trafficRules((rules) =>
      rules.map((rule) => ({ ...rule, ports: (rule.ports ?? []).map((port) => without(port, 'endPort')) })),
    ),
  },
  {
    name: 'UDP taken for TCP',
    facts: trafficRules((rules) =>
      rules.map((rule) => ({ ...rule, ports: (rule.ports ?? []).map((port) => without(port, 'protocol')) })),
    ),
  },
  {
    name: 'swapped priority',
    facts: (facts) =>
      specs<TrafficPolicySpec | SecurityProfileSpec>(facts, '', (spec) => ({
        ...spec,
        priority: 2_000_000 - (spec.priority ?? 1000),
      })),
  },
  { name: 'creation time ignored', facts: (facts) => policies(facts, (record) => ({ ...record, created: '' })) },
  {
    name: 'lost default deny',
    facts: (facts) => ({
      ...facts,
      policies: [
        ...facts.policies,
        {
          ref: { kind: everything.kind, namespace: '', name: 'zz' },
          created: '9999',
          generation: 1,
          inForce: everything as unknown as PolicyObject,
          errors: [],
        },
      ],
    }),
  },
  { name: 'reject rules lost', facts: trafficRules((rules) => rules.filter(({ action }) => action === 'allow')) },
  { name: 'L4 rules in reverse', facts: trafficRules((rules) => rules.toReversed()) },
  {
    name: 'wrong identity',
    facts: (facts) => {
      const shifted = [...facts.sandboxes.slice(1), ...facts.sandboxes.slice(0, 1)];
      return { ...facts, sandboxes: facts.sandboxes.map(({ uid }, index) => ({ ...shifted[index]!, uid })) };
    },
  },
  {
    name: 'selector ignored',
    facts: (facts) => specs<TrafficPolicySpec | SecurityProfileSpec>(facts, '', (spec) => ({ ...spec, selector: {} })),
  },
  {
    name: 'invalid object ignored',
    facts: (facts) => ({ ...facts, policies: facts.policies.filter(({ inForce }) => inForce !== null) }),
  },
  {
    name: 'unreadable selector selects nobody',
    facts: (facts) => ({
      ...facts,
      policies: facts.policies.filter(
        ({ ref, inForce }) =>
          inForce !== null || (facts.invalidSpecs[refText(ref)] as { priority?: number })?.priority === -1,
      ),
    }),
  },
  {
    name: 'own addresses forgotten',
    facts: (facts) => ({ ...facts, sandboxes: facts.sandboxes.map((sandbox) => ({ ...sandbox, addresses: [] })) }),
  },
  {
    name: 'service of another namespace',
    facts: (facts) => ({ ...facts, services: facts.services.map((one) => ({ ...one, namespace: 'team-a' })) }),
  },
  {
    name: 'hosts address ignored',
    facts: (facts) => ({
      ...facts,
      hosts: Object.fromEntries(Object.keys(facts.hosts).map((name) => [name, { address: '192.0.2.255' }])),
    }),
  },
  {
    name: 'prefix for exact',
    facts: clauses((clause) => ({
      ...clause,
      ...(clause.paths === undefined
        ? {}
        : { paths: clause.paths.map((path) => (path.type === 'Exact' ? { ...path, type: 'Prefix' as const } : path)) }),
    })),
  },
  {
    name: 'case-sensitive host',
    facts: clauses((clause) => ({
      ...clause,
      domains: clause.domains.map((domain) => (/[A-Z]/.test(domain) ? 'nobody.invalid' : domain)),
    })),
  },
  {
    name: 'wildcard includes its apex',
    facts: clauses((clause) => ({
      ...clause,
      domains: clause.domains.flatMap((domain) => (domain.startsWith('*.') ? [domain, domain.slice(2)] : [domain])),
    })),
  },
  { name: 'schemes ignored', facts: clauses((clause) => without(clause, 'schemes')) },
  { name: 'L7 ports ignored', facts: clauses((clause) => without(clause, 'ports')) },
  { name: 'methods ignored', facts: clauses((clause) => without(clause, 'methods')) },
  { name: 'header conditions ignored', facts: clauses((clause) => without(clause, 'headers')) },
  { name: 'query conditions ignored', facts: clauses((clause) => without(clause, 'queryParams')) },
  { name: 'only the first rule of a profile', facts: profileRules((rules) => rules.slice(0, 1)) },
  { name: 'bypass does not end the walk', facts: actions((all) => without(all, 'bypass')) },
  { name: 'block before bypass', facts: actions((all) => (all.block === undefined ? all : without(all, 'bypass'))) },
  {
    name: 'block after a bypass elsewhere ignored',
    facts: profileRules((rules) =>
      rules.some(({ actions: { bypass } }) => bypass === true)
        ? rules.map((rule) => ({ ...rule, actions: without(rule.actions, 'block') }))
        : rules,
    ),
  },
  {
    name: 'lost remove',
    facts: actions((all) =>
      all.headerManipulation === undefined
        ? all
        : { ...all, headerManipulation: without(all.headerManipulation, 'remove') },
    ),
  },
  {
    name: 'status of a block lost',
    facts: actions((all) => (all.block === undefined ? all : { ...all, block: { ...all.block, statusCode: 403 } })),
  },
  {
    name: 'body of a block lost',
    facts: actions((all) => (all.block === undefined ? all : { ...all, block: without(all.block, 'body') })),
  },
  {
    name: 'tools allowed by default',
    facts: actions((all) =>
      all.mcpToolPolicy === undefined
        ? all
        : { ...all, mcpToolPolicy: { ...all.mcpToolPolicy, defaultAction: 'allow' as const } },
    ),
  },
  {
    name: 'tool names ignored',
    facts: actions((all) =>
      all.mcpToolPolicy === undefined
        ? all
        : {
            ...all,
            mcpToolPolicy: {
              ...all.mcpToolPolicy,
              rules: all.mcpToolPolicy.rules.map((rule) => without(rule, 'toolNames')),
            },
          },
    ),
  },
  {
    name: 'missing credential taken for there',
    facts: (facts) => ({
      ...facts,
      secretKeys: Object.fromEntries(
        ['key', 'gone', 'wrong', 'empty'].flatMap((name) =>
          ['team-a', 'team-b'].map((namespace) => [`${namespace}/${name}`, ['apiKey']]),
        ),
      ),
    }),
  },
  {
    name: 'disabled credential injected',
    facts: actions((all) =>
      all.tokenTransformation === undefined
        ? all
        : { ...all, tokenTransformation: { ...all.tokenTransformation, disabled: false } },
    ),
  },
  { name: 'first header value only', request: http((one) => ({ ...one, headers: firstOfEach(one.headers) })) },
  {
    name: 'last header value only',
    request: http((one) => ({ ...one, headers: firstOfEach(one.headers.toReversed()) })),
  },
  {
    name: 'every rule reads the normalised path',
    request: http((one) => {
      const [path, ...query] = one.path.split('?');
      return { ...one, path: [normalisedPath(path!), ...query].join('?') };
    }),
  },
  {
    name: 'case-sensitive method',
    request: http((one) => ({ ...one, method: one.method === 'get' ? 'NONE' : one.method })),
  },
  {
    name: 'forged host taken for the destination',
    request: (request) =>
      request.http === undefined || request.destination.kind === 'name'
        ? request
        : { ...request, destination: { kind: 'name', name: hostOf(request.http), port: request.destination.port } },
  },
  {
    name: 'SNI not compared with Host',
    request: (request) => {
      const { sni, http: inside } = request;
      return sni === undefined || sni === '' || inside === undefined
        ? request
        : { ...request, http: { ...inside, authority: sni } };
    },
  },
  {
    name: 'TLS without SNI waved through',
    request: (request) => (request.sni === '' ? { ...request, sni: 'waved.invalid' } : request),
  },
  {
    name: 'last of two members of a body',
    request: http((one) => {
      try {
        const body = JSON.stringify(JSON.parse(Buffer.from(one.body ?? []).toString()));
        return { ...one, body: new Uint8Array(Buffer.from(body)) };
      } catch {
        return one;
      }
    }),
  },
];

function firstOfEach(headers: Http['headers']): Http['headers'] {
  return headers.filter(([name], index) => headers.findIndex(([other]) => other === name) === index);
}
