import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pod } from '../api/pod.ts';
import type { Logger } from '../base/logger.ts';
import type { Pki } from '../identity/pki-directory.ts';
import type { AddressPool, SandboxAddress } from './addresses.ts';
import type { Cgroups, PodCgroup } from './cgroups.ts';
import type { Layout } from './layout.ts';
import type { NodeNamespace } from './node-namespace.ts';
import { openSandboxNamespace, type SandboxNamespace } from './sandbox-namespace.ts';
import { type Sidecar, startSidecar } from './sidecar.ts';
import { writeTrustBundle } from './trust-bundle.ts';

/** What all Pods of an agent share. */
export interface PodNode {
  readonly node: NodeNamespace;
  readonly layout: Layout;
  readonly pki: Pki;
  readonly addresses: AddressPool;
  readonly cgroups: Cgroups;
  /** null: sandboxes get no sidecar and so no egress. */
  readonly envoyPath: string | null;
  readonly logger: Logger;
}

/** Processes of a Pod at most, where control groups can bound them. */
const MAX_PROCESSES = 4096;

/** Everything of a Pod but its containers: folder, address, namespaces, control groups, sidecar. */
export interface PodSandbox {
  readonly folder: string;
  readonly address: SandboxAddress;
  readonly namespace: SandboxNamespace;
  readonly cgroup: PodCgroup;
  /** Id of its user in the node namespace. */
  readonly outerUid: number;
  /** null for a Pod of no Sandbox: nobody has decided what it may reach, so it reaches nothing. */
  readonly sidecar: Sidecar | null;
  /** Ends and removes all of it; the address rests. */
  close(): Promise<void>;
}

/** Makes the sandbox of a Pod. What has been made when a step fails is removed again. */
export async function openPodSandbox(shared: PodNode, pod: Pod, onChange: () => void): Promise<PodSandbox> {
  const { node, layout, pki, addresses, cgroups } = shared;
  const uid = pod.metadata.uid!;
  const folder = layout.sandbox(uid);
  const undo: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const step of undo.splice(0).reverse()) {
      await step();
    }
  };
  try {
    const address = await addresses.take();
    undo.push(async () => addresses.release(address));
    await mkdir(join(folder, 'containers'), { recursive: true, mode: 0o700 });
    undo.push(() => rm(folder, { recursive: true, force: true }));
    await writeTrustBundle(join(folder, 'ca-bundle.pem'), pki.mitmCaPem);
    const cgroup = await cgroups.create(uid, { memoryBytes: memoryLimit(pod), processes: MAX_PROCESSES });
    undo.push(() => cgroup.remove());
    const namespace = await openSandboxNamespace(node, address);
    undo.push(() => namespace.close());
    await writeFile(join(folder, 'holder.json'), JSON.stringify(namespace.holder), { mode: 0o600 });
    const sidecar = await openSidecar(shared, pod, { folder, namespace, index: address.index, onChange });
    if (sidecar !== null) {
      undo.push(() => sidecar.stop());
    }
    return { folder, address, namespace, cgroup, outerUid: node.sandboxUid(address.index), sidecar, close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function openSidecar(
  shared: PodNode,
  pod: Pod,
  at: {
    readonly folder: string;
    readonly namespace: SandboxNamespace;
    readonly index: number;
    readonly onChange: () => void;
  },
): Promise<Sidecar | null> {
  const owner = (pod.metadata.ownerReferences ?? []).find(
    ({ kind, controller }) => kind === 'Sandbox' && controller === true,
  );
  if (owner === undefined || shared.envoyPath === null) {
    return null;
  }
  const name = `${pod.metadata.namespace}/${pod.metadata.name}`;
  return startSidecar({
    node: shared.node,
    layout: shared.layout,
    pki: shared.pki,
    envoyPath: shared.envoyPath,
    logger: shared.logger.child({ sidecar: name }),
    identity: { namespace: pod.metadata.namespace ?? '', uid: owner.uid },
    folder: at.folder,
    holderPid: at.namespace.holder.pid,
    index: at.index,
    onChange: at.onChange,
  });
}

const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};

/** Bytes that the containers may use together; null when one of them has no limit. */
export function memoryLimit(pod: Pod): number | null {
  const limits = pod.spec.containers.map(({ resources }) => {
    const limit = (resources as { limits?: { memory?: unknown } } | undefined)?.limits?.memory;
    const match = /^([0-9]+(?:\.[0-9]+)?)(|[kMGT]|[KMGT]i)$/.exec(String(limit ?? ''));
    return match === null ? null : Math.floor(Number(match[1]) * UNITS[match[2]!]!);
  });
  return limits.reduce((sum, limit) => (sum === null || limit === null ? null : sum + limit), 0 as number | null);
}
