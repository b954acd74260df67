import type { FieldError } from '../base/errors.ts';
import { checkObject } from './check.ts';
import {
  configMapSchema,
  controllerRevisionSchema,
  endpointSliceSchema,
  secretSchema,
  serviceSchema,
} from './core-kinds.ts';
import type { KubeObject } from './object.ts';
import { podSchema } from './pod.ts';
import { sandboxSchema } from './sandbox.ts';
import { API_VERSION } from './schema.ts';
import { type StructuralSchema, structural, withDefaults } from './schema-check.ts';
import { globalSecurityProfileSchema, securityProfileSchema } from './security-profile.ts';
import { globalTrafficPolicySchema, trafficPolicySchema } from './traffic-policy.ts';

export interface PrinterColumn {
  readonly name: string;
  readonly type: 'string' | 'integer' | 'date';
  readonly jsonPath: string;
}

/** Everything that is known of a kind. */
export interface Kind {
  readonly kind: string;
  readonly apiVersion: string;
  readonly plural: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly namespaced: boolean;
  /** Whether `status` is a subresource. */
  readonly hasStatus: boolean;
  /** Whether the kind is one of the product's own, with a CRD. */
  readonly custom: boolean;
  readonly printerColumns: readonly PrinterColumn[];
  readonly schema: StructuralSchema;
  /** The object with the defaults of its schema; a malformed member stays as it is. */
  defaults(object: KubeObject): KubeObject;
  /** Why the object is invalid (D2); empty when it is not. See `validateObject` for what `apply` refuses besides. */
  validate(object: KubeObject): readonly FieldError[];
}

const AGE: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' };

const POLICY_COLUMNS: readonly PrinterColumn[] = [
  { name: 'Priority', type: 'integer', jsonPath: '.spec.priority' },
  AGE,
];

const SANDBOX_COLUMNS: readonly PrinterColumn[] = [
  { name: 'Status', type: 'string', jsonPath: '.status.phase' },
  AGE,
  { name: 'Claimed', type: 'string', jsonPath: '.metadata.labels.agents\\.kruise\\.io/sandbox-claimed' },
  { name: 'shutdown_time', type: 'string', jsonPath: '.spec.shutdownTime' },
  { name: 'pause_time', type: 'string', jsonPath: '.spec.pauseTime' },
  { name: 'RecycledCount', type: 'integer', jsonPath: '.status.recycledCount' },
  { name: 'Message', type: 'string', jsonPath: '.status.message' },
];

interface Description {
  readonly shortNames?: readonly string[];
  readonly plural?: string;
  readonly clusterScoped?: boolean;
  readonly noStatus?: boolean;
  readonly columns?: readonly PrinterColumn[];
}

function describe(kind: string, apiVersion: string, typebox: object, description: Description): Kind {
  const singular = kind.toLowerCase();
  const schema = structural(typebox);
  const described = {
    kind,
    apiVersion,
    singular,
    plural: description.plural ?? `${singular}s`,
    shortNames: description.shortNames ?? [],
    namespaced: description.clusterScoped !== true,
    hasStatus: description.noStatus !== true,
    custom: apiVersion === API_VERSION,
    printerColumns: description.columns ?? [],
    schema,
    defaults: (object: KubeObject) => withDefaults(schema, object) as KubeObject,
  };
  return { ...described, validate: (object) => checkObject(described, object).invalid };
}

/** Every kind that a store keeps. */
export const KINDS: readonly Kind[] = [
  describe('Sandbox', API_VERSION, sandboxSchema, {
    shortNames: ['sbx'],
    plural: 'sandboxes',
    columns: SANDBOX_COLUMNS,
  }),
  describe('TrafficPolicy', API_VERSION, trafficPolicySchema, {
    shortNames: ['tp'],
    plural: 'trafficpolicies',
    columns: POLICY_COLUMNS,
  }),
  describe('GlobalTrafficPolicy', API_VERSION, globalTrafficPolicySchema, {
    shortNames: ['gtp'],
    plural: 'globaltrafficpolicies',
    clusterScoped: true,
    columns: POLICY_COLUMNS,
  }),
  describe('SecurityProfile', API_VERSION, securityProfileSchema, { shortNames: ['sp'] }),
  describe('GlobalSecurityProfile', API_VERSION, globalSecurityProfileSchema, {
    shortNames: ['gsp'],
    clusterScoped: true,
  }),
  describe('Pod', 'v1', podSchema, { shortNames: ['po'] }),
  describe('Secret', 'v1', secretSchema, { noStatus: true }),
  describe('ConfigMap', 'v1', configMapSchema, { shortNames: ['cm'], noStatus: true }),
  describe('Service', 'v1', serviceSchema, { shortNames: ['svc'] }),
  describe('EndpointSlice', 'discovery.k8s.io/v1', endpointSliceSchema, { noStatus: true }),
  describe('ControllerRevision', 'apps/v1', controllerRevisionSchema, { noStatus: true }),
];

const BY_KIND = new Map(KINDS.map((entry) => [entry.kind, entry]));

const BY_ANY_NAME = new Map(
  KINDS.flatMap((entry) =>
    [entry.kind.toLowerCase(), entry.plural, entry.singular, ...entry.shortNames].map((name) => [name, entry] as const),
  ),
);

/** The kind with exactly this name, e.g. `Sandbox`. */
export function kindNamed(kind: string): Kind | undefined {
  return BY_KIND.get(kind);
}

/** The kind that a person means: its kind, plural, singular or short name, in any case. */
export function findKind(name: string): Kind | undefined {
  return BY_ANY_NAME.get(name.toLowerCase());
}
