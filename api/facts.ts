import type { FieldError } from '../base/errors.ts';
import type { ObjectRef } from './object.ts';
import type { GlobalSecurityProfile, SecurityProfile } from './security-profile.ts';
import type { GlobalTrafficPolicy, TrafficPolicy } from './traffic-policy.ts';

/** A sandbox as a subject of policy. Labels are those its Pod carries, taken from the store and never from the wire. */
export interface SandboxFacts {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Addresses of its Pod, canonical; empty while there is none. */
  readonly addresses: readonly string[];
}

export type PolicyObject = TrafficPolicy | GlobalTrafficPolicy | SecurityProfile | GlobalSecurityProfile;

/** One stored policy with the form of it that is in force (D2). */
export interface PolicyRecord {
  readonly ref: ObjectRef;
  /** `creationTimestamp`; empty in a directory without state, where names then decide the order (D16). */
  readonly created: string;
  readonly generation: number;
  /** The form in force, defaulted: the stored one, or the last good one; null when there never was a good one. */
  readonly inForce: PolicyObject | null;
  /** What is wrong with the stored form; empty when it is the one in force. */
  readonly errors: readonly FieldError[];
}

/** The address that the operator gave a name in `hosts`; without a port the original port is dialled (D4). */
export interface HostEntry {
  readonly address: string;
  readonly port?: number;
}

/** Everything that a decision depends on, frozen; built by `world/`, read by the compiler and by `decide()`. */
export interface PolicyFacts {
  readonly sandboxes: readonly SandboxFacts[];
  readonly policies: readonly PolicyRecord[];
  /** Services with the addresses behind them (cluster address and endpoints). */
  readonly services: readonly {
    readonly namespace: string;
    readonly name: string;
    readonly addresses: readonly string[];
  }[];
  readonly pods: readonly {
    readonly namespace: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly addresses: readonly string[];
  }[];
  /** Raw spec of stored objects without a form in force, by `refText`: whom it would select is denied (D2). */
  readonly invalidSpecs: Readonly<Record<string, unknown>>;
  /** Secrets that exist, with the keys that have a usable value; keyed `namespace/name`. Values are never here. */
  readonly secretKeys: Readonly<Record<string, readonly string[]>>;
  /** `hosts` of the settings, by lower-case name. */
  readonly hosts: Readonly<Record<string, HostEntry>>;
  /** Virtual address of each listed name, by lower-case name (D4). */
  readonly virtualAddresses: Readonly<Record<string, string>>;
  /** Namespace of the control plane: where a Global policy's service without a namespace is looked up. */
  readonly rootNamespace: string;
}

/** The range of virtual addresses: one address per listed name, never routed anywhere (D4). */
export const VIRTUAL_RANGE = '240.0.0.0/8';
