import { stat } from 'node:fs/promises';
import { kindNamed } from '../api/kinds.ts';
import { silentLogger } from '../base/logger.ts';
import { type EffectivePolicy, effectivePolicy } from '../control-plane/effective-policy.ts';
import { type ExplainQuery, type Explanation, explainRequest } from '../control-plane/explain.ts';
import { ingressCompiler } from '../control-plane/ingress-world.ts';
import type { Published } from '../control-plane/plane.ts';
import { type CompiledPlane, compiled } from '../control-plane/routes.ts';
import { resourcesOf } from '../control-plane/sandbox-resources.ts';
import { scanMcp } from '../extproc/egress/mcp-scan.ts';
import { TOKEN_AUDIENCE, TOKEN_ISSUER } from '../identity/sandbox-token.ts';
import { TRUST_DOMAIN } from '../identity/spiffe.ts';
import { layoutOf } from '../local/layout.ts';
import { readSettings } from '../local/settings.ts';
import type { CompilerSettings } from '../policy-compiler/compilation.ts';
import { createCompiler, listedNames } from '../policy-compiler/compile.ts';
import { type DirectoryStore, openDirectoryStore } from '../store/directory.ts';
import type { Problem } from '../store/manifest-index.ts';
import { ManifestStore } from '../store/manifest-store.ts';
import type { ObjectStore } from '../store/object-store.ts';
import { allocateVirtualAddresses } from '../world/virtual-addresses.ts';
import { World } from '../world/world.ts';
import { ROOT_NAMESPACE } from './roles/role.ts';

/** What the manifests of a directory mean, without a running plane. */
export interface OfflinePlane extends Pick<Published, 'compilation' | 'ingress' | 'world'> {
  /** Files that cannot be read as manifests. */
  readonly problems: readonly Problem[];
}

/**
 * Compiles a directory in which nothing runs. One that never had a plane is read as it is, and nothing is written (D16):
 * virtual addresses are then those that a first start would give, and equal creation times leave the order to the names.
 */
export async function offlinePlane(dir: string): Promise<OfflinePlane> {
  const store = await openToRead(dir);
  try {
    const compiledStore = await compileStore(dir, store);
    return { ...compiledStore, problems: store instanceof ManifestStore ? store.problems : store.problems() };
  } finally {
    await store.close();
  }
}

/**
 * Compiles the objects of a store with the settings of a directory. Names without a virtual address get the next ones
 * after those that the store and `known` have. Throws `range-exhausted`.
 */
export async function compileStore(
  dir: string,
  store: ObjectStore,
  known: Readonly<Record<string, string>> = {},
): Promise<Pick<Published, 'compilation' | 'ingress' | 'world'>> {
  const settings = await readSettings(dir);
  const world = new World({
    store,
    settings: { hosts: settings.hosts, rootNamespace: ROOT_NAMESPACE },
    logger: silentLogger,
  });
  try {
    const view = await world.ready();
    const given = { ...known, ...view.facts.virtualAddresses };
    const virtualAddresses = allocateVirtualAddresses(given, listedNames(view.facts));
    const whole = { ...view, facts: { ...view.facts, virtualAddresses } };
    const compileIngress = ingressCompiler({
      domain: settings.domain,
      ingressSocket: layoutOf(dir).socket('ingress'),
      publicPort: 8080,
    });
    return {
      compilation: createCompiler({ scanMcp }).compile(whole.facts, compilerSettings(dir)),
      ingress: compileIngress(whole),
      world: whole,
    };
  } finally {
    await world.close();
  }
}

/** The state of a plane that has stopped counts too: creation times order policies, addresses and good forms are kept. */
async function openToRead(dir: string): Promise<ManifestStore | DirectoryStore> {
  const hasState = (await stat(layoutOf(dir).state).catch(() => null)) !== null;
  return hasState ? openDirectoryStore(dir, { kinds: kindNamed }) : new ManifestStore(dir, kindNamed);
}

/** Answers `explain` from the manifests. */
export async function explainOffline(dir: string, query: ExplainQuery): Promise<Explanation | EffectivePolicy> {
  const { world, compilation } = await offlinePlane(dir);
  return query.url === undefined
    ? effectivePolicy(world.facts, compilation, query.sandbox)
    : explainRequest(world.facts, compilation, query);
}

/** Answers `compile` from the manifests, for one sandbox when it is given. */
export async function compileOffline(dir: string, sandbox?: string): Promise<CompiledPlane> {
  const plane = await offlinePlane(dir);
  return compiled(sandbox === undefined ? plane : resourcesOf(plane, sandbox));
}

/** Paths as a plane of this directory would have them; its keys do not exist yet. */
function compilerSettings(dir: string): CompilerSettings {
  const { pki, run, socket } = layoutOf(dir);
  return {
    trustDomain: TRUST_DOMAIN,
    tokenIssuer: TOKEN_ISSUER,
    tokenAudience: TOKEN_AUDIENCE,
    tokenJwks: '{"keys":[]}',
    egressSocket: socket('egress'),
    gatewayCaFile: `${pki}/ca.crt`,
    resolver: null,
    originCaFile: `${run}/origin-roots.pem`,
  };
}
