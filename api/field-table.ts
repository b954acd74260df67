import type { FieldEntry, FieldTable } from './field-classes.ts';

/** Makes a table: fields that are carried out, and the others with their reasons. */
export function table(carriedOut: readonly string[], others: FieldTable): FieldTable {
  const entries = carriedOut.map((path): [string, FieldEntry] => [path, { class: 'carried out', why: '' }]);
  return { ...Object.fromEntries(entries), ...others };
}

export function refused(why: string): FieldEntry {
  return { class: 'refused', why };
}

export function noted(why: string): FieldEntry {
  return { class: 'noted', why };
}

/** A field that is carried out except with these values. */
export function except(values: NonNullable<FieldEntry['values']>): FieldEntry {
  return { class: 'carried out', why: '', values };
}

const DENIED_ANYWAY = noted('a sandbox has no network but TCP, so this traffic is denied whatever a policy says');

const SELECTOR = [
  'spec.selector.matchLabels',
  'spec.selector.matchExpressions[].key',
  'spec.selector.matchExpressions[].operator',
  'spec.selector.matchExpressions[].values[]',
];

export const TRAFFIC_POLICY_FIELDS: FieldTable = table(
  [
    ...SELECTOR,
    'spec.priority',
    'spec.egress.rules[].action',
    'spec.egress.rules[].to[].cidr',
    'spec.egress.rules[].to[].fqdn',
    'spec.egress.rules[].to[].service.name',
    'spec.egress.rules[].to[].service.namespace',
    'spec.egress.rules[].to[].workload.namespace',
    'spec.egress.rules[].to[].workload.selector',
    'spec.egress.rules[].ports[].port',
    'spec.egress.rules[].ports[].endPort',
  ],
  {
    'spec.ingress': refused('only egress is governed; remove it'),
    'spec.egress.rules[].from': refused('the source is always the selected sandbox itself; use the selector'),
    'spec.egress.rules[].ports[].protocol': except({
      UDP: DENIED_ANYWAY,
      ICMP: DENIED_ANYWAY,
      SCTP: DENIED_ANYWAY,
    }),
  },
);

const CLAUSE = 'spec.rules[].match[]';
const ACTIONS = 'spec.rules[].actions';
const TOKEN = `${ACTIONS}.tokenTransformation`;
const NO_PROVIDER = refused('credentials come from a Secret only; use credentialRef.secret');
const NO_CEL = refused('expressions are not evaluated');

export const SECURITY_PROFILE_FIELDS: FieldTable = table(
  [
    ...SELECTOR,
    'spec.priority',
    'spec.rules[].name',
    `${CLAUSE}.domains[]`,
    `${CLAUSE}.methods[]`,
    `${CLAUSE}.schemes[]`,
    `${CLAUSE}.ports[]`,
    ...['paths', 'headers', 'queryParams'].flatMap((list) => [`${CLAUSE}.${list}[].type`, `${CLAUSE}.${list}[].value`]),
    `${CLAUSE}.headers[].name`,
    `${CLAUSE}.queryParams[].name`,
    `${ACTIONS}.block.statusCode`,
    `${ACTIONS}.block.body`,
    `${ACTIONS}.bypass`,
    `${ACTIONS}.mcpToolPolicy.defaultAction`,
    `${ACTIONS}.mcpToolPolicy.unsupportedVersionAction`,
    `${ACTIONS}.mcpToolPolicy.rules[].method`,
    `${ACTIONS}.mcpToolPolicy.rules[].toolNames[]`,
    `${ACTIONS}.mcpToolPolicy.rules[].action`,
    `${ACTIONS}.mcpToolPolicy.denyResponse.statusCode`,
    `${ACTIONS}.mcpToolPolicy.denyResponse.body`,
    `${ACTIONS}.headerManipulation.set[].name`,
    `${ACTIONS}.headerManipulation.set[].value`,
    `${ACTIONS}.headerManipulation.remove[]`,
    `${TOKEN}.disabled`,
    `${TOKEN}.credentialRef.secret.name`,
    `${TOKEN}.credentialRef.secret.namespace`,
    `${TOKEN}.credentialRef.name`,
    `${TOKEN}.credentialRef.namespace`,
    `${TOKEN}.apiKey.targetHeaders.names[]`,
    `${TOKEN}.apiKey.value.template`,
    `${TOKEN}.apiKey.targetHeader`,
    `${TOKEN}.apiKey.valueTemplate`,
  ],
  {
    'spec.inputs': refused('templates and expressions that would read inputs are not evaluated'),
    'spec.audit': refused('audit events are not sent'),
    [`${ACTIONS}.audit`]: refused('audit events are not sent'),
    [`${TOKEN}.type`]: except({ AliyunSTS: refused('requests are not signed again; use ApiKey') }),
    [`${TOKEN}.failStrategy`]: except({
      Allow: refused('a request without its credential is always denied; use Block'),
      Ignore: refused('a request without its credential is always denied; use Block'),
    }),
    [`${TOKEN}.credentialRef.credentialProvider`]: NO_PROVIDER,
    [`${TOKEN}.credentialRef.kind`]: except({ CredentialProvider: NO_PROVIDER }),
    [`${TOKEN}.apiKey.when`]: refused('the credential is always written; use match.headers of the rule'),
    [`${TOKEN}.apiKey.targetHeaders.cel`]: NO_CEL,
    [`${TOKEN}.apiKey.value.cel`]: NO_CEL,
    [`${TOKEN}.apiKey.value.value`]: refused('use template, or headerManipulation for a value that is no credential'),
  },
);

const NO_UPGRADE = refused('a running Sandbox is not upgraded; delete it and make a new one');
const NO_PROBES = refused('state probes are not run');

export const SANDBOX_FIELDS: FieldTable = table(
  ['spec.paused', 'spec.shutdownTime', 'spec.pauseTime', 'spec.autoPausePolicy.resume.onIngressTraffic.pauseTimeout'],
  {
    'spec.pauseStrategy.type': except({
      Hibernate: refused('state is not written to disk; leave pauseStrategy out to freeze, or use Stop'),
    }),
    'spec.pauseStrategy.hibernateStrategy': noted('it is read with type Hibernate only'),
    'spec.persistentContents': noted('freezing keeps everything, Stop keeps nothing'),
    'spec.runtimes': refused('nothing is injected into the Pod'),
    'spec.lifecycle': NO_UPGRADE,
    'spec.upgradePolicy': NO_UPGRADE,
    'spec.templateRef': refused('SandboxTemplate is not there yet; write the template inline'),
    'spec.volumeClaimTemplates': refused('there are no persistent volumes; use emptyDir'),
    'spec.probes': NO_PROBES,
    'spec.autoPausePolicy.pause': NO_PROBES,
    'spec.autoPausePolicy.resume.whenProbedScheduleTime': NO_PROBES,
  },
);
