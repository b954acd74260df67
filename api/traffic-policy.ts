import type { Type } from 'typebox';
import { conditions, labelSelector } from './common.ts';
import {
  API_VERSION,
  type DeepReadonly,
  int32,
  list,
  object,
  oneOf,
  optional,
  text,
  textMap,
  typeMeta,
} from './schema.ts';

/** TrafficPolicy and GlobalTrafficPolicy: who may be reached at connection level (crds §10). */

const peer = object(
  {
    cidr: optional(text({ minLength: 1, maxLength: 43, description: 'Address range, or one address.' })),
    fqdn: optional(text({ minLength: 1, maxLength: 253, description: 'Host name.' })),
    service: optional(
      object({
        name: text({ minLength: 1, maxLength: 253 }),
        namespace: optional(
          text({
            minLength: 1,
            maxLength: 63,
            description: "Default: the policy's namespace; for a Global one the root.",
          }),
        ),
      }),
    ),
    workload: optional(
      object({
        namespace: text({ minLength: 1, maxLength: 63 }),
        selector: textMap({ maxProperties: 10, description: 'Labels that the Pods carry, each with this value.' }),
      }),
    ),
  },
  { cel: ['onePeer'] },
);

const port = object(
  {
    protocol: optional(oneOf(['TCP', 'UDP', 'ICMP', 'SCTP'], { description: 'Absent: any protocol.' })),
    port: optional(int32({ minimum: 1, maximum: 65535 })),
    endPort: optional(int32({ minimum: 1, maximum: 65535, description: 'Last port of an inclusive range.' })),
  },
  { cel: ['endPortNeedsPort', 'endPortOrder'] },
);

const rule = object({
  action: oneOf(['allow', 'reject']),
  from: optional(list(peer, { maxItems: 20, listType: 'atomic', description: 'Source peers, any of them.' })),
  to: optional(list(peer, { maxItems: 20, listType: 'atomic', description: 'Destination peers, any of them.' })),
  ports: optional(list(port, { maxItems: 20, listType: 'atomic', description: 'Any of them; empty: every port.' })),
});

const direction = (description: string) =>
  object({ rules: optional(list(rule, { maxItems: 50, listType: 'atomic' })) }, { description });

const spec = object(
  {
    priority: optional(int32({ default: 1000, minimum: 0, description: 'Order between policies, lower first.' })),
    selector: labelSelector('Governed Pods; empty: every Pod in scope.'),
    ingress: optional(direction('Inbound rules.')),
    egress: optional(direction('Outbound rules.')),
  },
  { cel: ['direction'] },
);

const status = object({ conditions: optional(conditions(20)) });

export const trafficPolicySchema = object({
  ...typeMeta(API_VERSION, 'TrafficPolicy'),
  spec: optional(spec),
  status: optional(status),
});

export const globalTrafficPolicySchema = object({
  ...typeMeta(API_VERSION, 'GlobalTrafficPolicy'),
  spec: optional(spec),
  status: optional(status),
});

export type TrafficPolicy = DeepReadonly<Type.Static<typeof trafficPolicySchema>>;
export type GlobalTrafficPolicy = DeepReadonly<Type.Static<typeof globalTrafficPolicySchema>>;
export type TrafficPolicySpec = DeepReadonly<Type.Static<typeof spec>>;
export type TrafficRule = DeepReadonly<Type.Static<typeof rule>>;
export type TrafficPeer = DeepReadonly<Type.Static<typeof peer>>;
export type TrafficPort = DeepReadonly<Type.Static<typeof port>>;
