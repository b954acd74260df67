import { isLabelValue } from './names.ts';

/** Keys that other programs know too: labels, annotations and finalizers (crds §12). */

const PREFIX = 'agents.kruise.io/';
/** Keys that only this product writes; a pod template must not hold one. */
export const OWN_PREFIX = 'sandgate.dev/';

/** Sandbox: the short id under which it is reached; absent: `<namespace>--<name>`. */
export const LABEL_SANDBOX_ID = `${PREFIX}sandbox-id`;
/** Pod: name of its Sandbox; left out where the name is too long for a label. */
export const LABEL_SANDBOX_NAME = `${PREFIX}sandbox-name`;
/** Pod: uid of its Sandbox. */
export const LABEL_SANDBOX_UID = `${PREFIX}sandbox-uid`;
/** Pod, as label and annotation: `sandbox`. */
export const LABEL_CREATED_BY = `${PREFIX}created-by`;
/** Sandbox: whether a user holds it. */
export const LABEL_SANDBOX_CLAIMED = `${PREFIX}sandbox-claimed`;
/** Sandbox: the SandboxSet whose member it is. */
export const LABEL_SANDBOX_POOL = `${PREFIX}sandbox-pool`;
/** Pod: revision of the template that it was made from. */
export const LABEL_POD_TEMPLATE_HASH = 'pod-template-hash';
/** EndpointSlice: the Service that it belongs to. */
export const LABEL_SERVICE_NAME = 'kubernetes.io/service-name';

/** Sandbox: the token that a client must show at the ingress gateway. A credential: never logged. */
export const ANNOTATION_ACCESS_TOKEN = `${PREFIX}runtime-access-token`;
/** Sandbox: id of its owner. */
export const ANNOTATION_OWNER = `${PREFIX}owner`;
/** Sandbox: how long a paused one is kept; a positive duration or `forever`. */
export const ANNOTATION_RETENTION = `${PREFIX}reserve-paused-sandbox-duration`;
/** Sandbox: it may be returned to its pool. */
export const ANNOTATION_CLEANUP_ENABLED = `${PREFIX}cleanup-enabled`;
/** Sandbox: it is to be returned to its pool. */
export const ANNOTATION_CLEANUP = `${PREFIX}cleanup`;
/** Sandbox: starts a replace upgrade of a paused one. */
export const ANNOTATION_UPGRADE_TRIGGER = `${PREFIX}upgrade-resume-trigger`;
/** Sandbox: SecurityProfile rules of this one Sandbox. */
export const ANNOTATION_SECURITY_RULES = `${PREFIX}security-rules`;
/** Sandbox: what the runtime inside is initialised with again after each resume. */
export const ANNOTATION_INIT_RUNTIME = `${PREFIX}init-runtime-request`;
/** Sandbox: volumes that are mounted again after each resume. */
export const ANNOTATION_CSI_VOLUMES = 'e2b.agents.kruise.io/csi-volume-config';
/** Sandbox: whose security token it gets, and gets anew after each resume. */
export const ANNOTATION_AGENT_NAME = 'security.agents.kruise.io/agent-name';
/** Sandbox: hash of the part of its template that cannot change in place. */
export const ANNOTATION_IMMUTABLE_HASH = 'sandbox.agents.kruise.io/hash-immutable-part';

/** Pod: `"true"` asks the node agent to freeze its processes (D18). */
export const ANNOTATION_FREEZE = 'sandgate.dev/freeze';
/** Pod: seconds that its processes get to end, in place of its spec's own; set before it is deleted (lifecycle §1.7). */
export const ANNOTATION_GRACE = 'sandgate.dev/grace-period-seconds';
/** Pod condition: every process is frozen. It says the truth at all times: False as soon as they run again. */
export const CONDITION_CONTAINERS_PAUSED = 'ContainersPaused';
/** Pod condition: every process runs again after a freeze; absent or False before. */
export const CONDITION_CONTAINERS_RESUMED = 'ContainersResumed';

/** Sandbox: holds its end until its Pod is gone (crds §12.3). */
export const FINALIZER_SANDBOX = `${PREFIX}sandbox`;
/** Pod: holds its end until every gateway has withdrawn its address (D12). */
export const FINALIZER_WITHDRAWAL = 'sandgate.dev/withdrawal';

/**
 * The labels that tell whose Pod it is: the controller writes them, and policies select by them, so both take them from
 * here. A name that is too long for a label is left out (crds §12.1).
 */
export function ownerLabels(name: string, uid: string): Readonly<Record<string, string>> {
  return {
    [LABEL_CREATED_BY]: 'sandbox',
    ...(isLabelValue(name) ? { [LABEL_SANDBOX_NAME]: name } : {}),
    [LABEL_SANDBOX_UID]: uid,
  };
}
