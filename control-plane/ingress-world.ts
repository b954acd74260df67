import type { KubeObject } from '../api/object.ts';
import { compareText } from '../base/canonical.ts';
import { compileIngress, type IngressRoute, type IngressSettings } from '../policy-compiler/ingress.ts';
import type { ResourceJson } from '../policy-compiler/output.ts';
import { Kept } from '../world/keep.ts';
import { routeOf } from '../world/routes.ts';
import type { WorldView } from '../world/world.ts';

/** An id whose scope key Envoy can cut from the host name: one lower-case label without `-` (D17). */
const NATIVE_ID = /^[a-z0-9]{1,57}$/;

/**
 * Compiles the ingress gateway's resources of a state of the world. Only a running sandbox with a native id and a token
 * has a route of its own; it is withdrawn as soon as the object says anything else. Of two sandboxes with one id, which
 * a scope key can have only once, neither is native: the processor decides.
 */
export function ingressCompiler(settings: IngressSettings): (world: WorldView) => readonly ResourceJson[] {
  const known = new WeakMap<KubeObject, IngressRoute | null>();
  const made = new Kept<[WorldView['sandboxes']], readonly ResourceJson[]>();
  const compile = (sandboxes: WorldView['sandboxes']) => {
    const routes = sandboxes.flatMap((sandbox) => {
      const route = known.has(sandbox) ? known.get(sandbox) : nativeRoute(sandbox);
      known.set(sandbox, route ?? null);
      return route === null || route === undefined ? [] : [route];
    });
    const ids = Map.groupBy(routes, ({ id }) => id);
    const unique = routes.filter(({ id }) => ids.get(id)?.length === 1);
    return compileIngress(
      unique.sort((a, b) => compareText(a.id, b.id)),
      settings,
    );
  };
  return ({ sandboxes }) => made.get([sandboxes], compile);
}

function nativeRoute(sandbox: KubeObject): IngressRoute | null {
  // A shutdown time that passes is the controller's to act on; it deletes the object, and the route goes with it.
  const { id, uid, address, token, ref, state, requireTrafficAuth } = routeOf(sandbox, 0);
  const isNative = state === 'running' && NATIVE_ID.test(id) && !requireTrafficAuth && address !== '';
  return isNative && token !== null && isStrong(token.reveal()) ? { id, uid, address, token, ref } : null;
}

/** A route match does not take constant time, so only a random token of at least 122 bits becomes one (D11). */
function isStrong(token: string): boolean {
  return /^[A-Za-z0-9._~-]{32,512}$/.test(token);
}
