import { createHash, timingSafeEqual } from 'node:crypto';
import { joinHostPort } from '../../base/addresses.ts';
import { counter, gauge } from '../../base/metrics.ts';
import { METADATA_NAMESPACE } from '../../policy-compiler/ingress-names.ts';
import type { RouteRecord, RouteTable } from '../../world/routes.ts';
import type { Answer } from '../answer.ts';
import type { Handler, HandlerContext } from '../exchange.ts';
import { headerValues, type RequestHead } from '../request.ts';
import {
  BAD_PORT,
  NO_VERIFIER,
  NOT_READY,
  notFound,
  notRunning,
  type Refusal,
  refuse,
  TOO_MANY_HELD,
  UNAUTHORIZED,
  UNMAPPED,
  WAKE_FAILED,
} from './answers.ts';
import { type Mapping, mapRequest } from './mapping.ts';
import { PortProbe } from './port-probe.ts';
import type { Waker } from './wake.ts';

export interface IngressHandlerOptions {
  readonly routes: Pick<RouteTable, 'lookup' | 'isTombstone'>;
  readonly waker: Pick<Waker, 'wake' | 'isWaking'>;
  /** Whether every sandbox that was there at the start is known. */
  readonly isReady: () => boolean;
  /** Requests held at the same time, for one sandbox and in total. */
  readonly maxHeldPerSandbox?: number;
  readonly maxHeld?: number;
}

/** Envoy waits this long for an answer about a request that is held; more than a wake and a probe may take. */
const HOLD_SECONDS = 125;

const authentications = counter('sandgate_ingress_auth_total', 'Authentications at the ingress', ['result']);
const heldGauge = gauge('sandgate_ingress_held', 'Requests held while their sandbox wakes');

type SandboxMapping = Extract<Mapping, { readonly kind: 'sandbox' }>;

/**
 * The authority about requests to sandboxes: maps, authenticates, and only then looks at the sandbox's state, so that
 * who may not enter learns nothing and wakes nothing (ingress-gateway §0.3, D9); then forwards or wakes.
 */
export function ingressHandler(options: IngressHandlerOptions): Handler {
  const held = new HeldRequests(options.maxHeldPerSandbox ?? 5000, options.maxHeld ?? 50_000);
  const probe = new PortProbe();
  return async (head, context) => {
    const mapping = mapRequest(head);
    if (mapping.kind === 'none') {
      return refuse(UNMAPPED, head);
    }
    if (!options.isReady()) {
      return refuse(NOT_READY, head);
    }
    const route = options.routes.lookup(mapping.id);
    const refused = authenticate(options, head, mapping, route);
    authentications.inc({ result: refused === null ? 'passed' : refused.reason });
    if (refused !== null || route === undefined) {
      return refuse(refused ?? UNAUTHORIZED, head);
    }
    if (mapping.port < 1 || mapping.port > 65_535) {
      return refuse(BAD_PORT, head);
    }
    if (route.state === 'running') {
      return forward(route, mapping, 'x-miss');
    }
    if (!route.wakeOnTraffic || route.ended) {
      return refuse(notRunning(mapping.id), head);
    }
    // Between its resume and its readiness a sandbox looks dead; whoever comes then joins the wake that is under way.
    if (route.resting || options.waker.isWaking(route.uid)) {
      return hold({ waker: options.waker, held, probe }, head, context, mapping, route);
    }
    // Upgrading and the like: not running, and no resume would change it (ingress-gateway §4.2).
    return refuse(route.state === 'paused' ? WAKE_FAILED : notRunning(mapping.id), head);
  };
}

/** Null: the caller may enter. An unknown sandbox and a wrong token are answered alike (D9). */
function authenticate(
  { routes }: IngressHandlerOptions,
  head: RequestHead,
  { id }: SandboxMapping,
  route: RouteRecord | undefined,
): Refusal | null {
  const values = headerValues(head, 'x-access-token');
  const given = values.length === 1 ? values[0]! : '';
  if (route === undefined) {
    return given !== '' && routes.isTombstone(id, given) ? notFound(id) : UNAUTHORIZED;
  }
  if (route.requireTrafficAuth) {
    return NO_VERIFIER;
  }
  return route.token !== null && given !== '' && equal(given, route.token.reveal()) ? null : UNAUTHORIZED;
}

/** Compares the bytes of a header, one per character, with a text; takes the same time for every wrong token (D11). */
function equal(given: string, token: string): boolean {
  const digest = (text: string, encoding: 'latin1' | 'utf8') => createHash('sha256').update(text, encoding).digest();
  return timingSafeEqual(digest(given, 'latin1'), digest(token, 'utf8'));
}

interface Holding {
  readonly waker: IngressHandlerOptions['waker'];
  readonly held: HeldRequests;
  readonly probe: PortProbe;
}

async function hold(
  { waker, held, probe }: Holding,
  head: RequestHead,
  context: HandlerContext,
  mapping: SandboxMapping,
  route: RouteRecord,
): Promise<Answer> {
  if (!held.enter(route.uid)) {
    return refuse(TOO_MANY_HELD, head);
  }
  try {
    context.extend(HOLD_SECONDS);
    const woken = await Promise.race([waker.wake(route.uid), aborted(context.signal)]);
    if (woken === null) {
      return refuse(WAKE_FAILED, head);
    }
    if (woken.id !== mapping.id) {
      return refuse(notRunning(mapping.id), head);
    }
    await probe.awaitPort(woken.address, mapping.port, context.signal);
    return forward(woken, mapping, 'x-woken');
  } finally {
    held.leave(route.uid);
  }
}

function aborted(signal: AbortSignal): Promise<null> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve(null);
    }
    signal.addEventListener('abort', () => resolve(null), { once: true });
  });
}

/** The destination goes to Envoy as metadata, never as a header; the scope holds the route that dials it. */
function forward(route: RouteRecord, { port, path }: SandboxMapping, scope: 'x-miss' | 'x-woken'): Answer {
  return {
    kind: 'continue',
    set: { 'x-sbx-scope': scope, ...(path === null ? {} : { ':path': path }) },
    clearRouteCache: true,
    metadata: {
      'envoy.lb.original_dst': { host: joinHostPort(route.address, port) },
      [METADATA_NAMESPACE]: { sandbox: route.uid },
    },
  };
}

/** How many requests wait, for each sandbox and in all. */
class HeldRequests {
  readonly #perSandbox: number;
  readonly #total: number;
  readonly #counts = new Map<string, number>();
  #all = 0;

  constructor(perSandbox: number, total: number) {
    this.#perSandbox = perSandbox;
    this.#total = total;
  }

  enter(uid: string): boolean {
    const count = this.#counts.get(uid) ?? 0;
    if (count >= this.#perSandbox || this.#all >= this.#total) {
      return false;
    }
    this.#counts.set(uid, count + 1);
    this.#all += 1;
    heldGauge.inc();
    return true;
  }

  leave(uid: string): void {
    const count = this.#counts.get(uid) ?? 1;
    if (count === 1) {
      this.#counts.delete(uid);
    } else {
      this.#counts.set(uid, count - 1);
    }
    this.#all -= 1;
    heldGauge.dec();
  }
}
