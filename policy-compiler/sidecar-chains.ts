import { type AddressRange, LINK_LOCAL_RANGES, rangesOverlap, rangeText } from '../base/addresses.ts';
import { contentHash } from '../base/canonical.ts';
import type { EnvoyJson } from '../proto/resource.ts';
import { type L4Rule, type Ports, portsOverlap, portsText } from './l4-policy.ts';
import { type L4Set, type NameFacts, namePieces, standingOf } from './l4-set.ts';

/** A destination of a rule: a range of real addresses, or the virtual address of a name. */
type Target =
  | { readonly kind: 'range'; readonly range: AddressRange }
  | { readonly kind: 'name'; readonly name: NameFacts };

/** One step of the sidecar's ordered matcher, and the filter chain that it leads to. */
export interface Step {
  readonly target: Target;
  readonly ports: Ports;
  readonly rule: L4Rule;
  /** `rule:<hash>` for an allow, `deny:<hash>` for a reject. */
  readonly chain: string;
  /**
   * Hash of the earlier rejects that take a part of this step's connections, and of where a name may not be dialled;
   * empty when nothing does. It is the chain's content: when it changes, Envoy ends the chain's connections, since some
   * of them may have become forbidden (D14).
   */
  readonly shadow: string;
}

/** More pieces than this of one rule share chains, so that a rule of many addresses stays small. */
const MAX_CHAINS = 64;

/**
 * The rules of a set as ordered steps, one per destination and port entry. A chain is named by its destination and
 * ports alone: it stays the same when its rule moves, or when other destinations come to and go from the rule, so
 * connections that stay allowed survive (D14).
 */
export function stepsOf(set: L4Set): { readonly addresses: readonly Step[]; readonly names: readonly Step[] } {
  const addresses = set.rules.flatMap((rule) =>
    rule.peers.flatMap((peer) =>
      peer.kind === 'range' ? rule.ports.map((ports) => ({ target: peer as Target, ports, rule })) : [],
    ),
  );
  const names = set.rules.flatMap((rule) =>
    set.names
      .filter((name) => standingOf(rule, name.name, name.host).kind === 'decides')
      .flatMap((name) => rule.ports.map((ports) => ({ target: { kind: 'name', name } as Target, ports, rule }))),
  );
  return { addresses: withChains(set, addresses), names: withChains(set, names) };
}

type Piece = Omit<Step, 'chain' | 'shadow'>;

function withChains(set: L4Set, pieces: readonly Piece[]): readonly Step[] {
  const sizes = new Map<L4Rule, number>();
  for (const { rule } of pieces) {
    sizes.set(rule, (sizes.get(rule) ?? 0) + 1);
  }
  const rejects: Piece[] = [];
  return pieces.map((piece) => {
    if (piece.rule.action === 'reject') {
      rejects.push(piece);
      return { ...piece, chain: rejectChain(piece.rule), shadow: '' };
    }
    const own = contentHash(pieceText(piece));
    const shared = sizes.get(piece.rule)! > MAX_CHAINS;
    const bucket = Number.parseInt(own.slice(0, 4), 16) % MAX_CHAINS;
    const chain = shared
      ? `rule:${contentHash([piece.rule.ref, piece.rule.ports.map(portsText), bucket])}`
      : `rule:${own}`;
    return { ...piece, chain, shadow: shadowOf(set, piece, rejects) };
  });
}

/** Name of the chain of a reject rule. */
export function rejectChain({ ref, index }: L4Rule): string {
  return `deny:${contentHash([ref, index])}`;
}

function pieceText({ target, ports }: Piece): string {
  return `${target.kind} ${targetText(target)} ${portsText(ports)}`;
}

function targetText(target: Target): string {
  return target.kind === 'name' ? target.name.name : rangeText(target.range);
}

function shadowOf(set: L4Set, piece: Piece, rejects: readonly Piece[]): string {
  const cuts = rejects
    .filter((reject) => portsOverlap(reject.ports, piece.ports) && targetsOverlap(reject.target, piece.target))
    .map(pieceText);
  const dial = piece.target.kind === 'name' ? notDialled(set, piece.target.name.name, piece.ports) : [];
  const named =
    piece.target.kind === 'range' && overlapsLinkLocal(piece.target.range) ? set.linkLocal.map(rangeText) : [];
  return cuts.length + dial.length + named.length === 0 ? '' : contentHash([cuts, dial, named]);
}

function overlapsLinkLocal(range: AddressRange): boolean {
  return LINK_LOCAL_RANGES.some((known) => rangesOverlap(known, range));
}

/** Where the name may not be dialled, as runs of ports that do not depend on how other rules divide them. */
function notDialled(set: L4Set, name: string, ports: Ports): readonly string[] {
  const runs: { from: number; ranges: string }[] = [];
  for (const piece of namePieces(set, name)) {
    const ranges = piece.notDialled.join(' ');
    if (portsOverlap(piece.ports, ports) && runs.at(-1)?.ranges !== ranges) {
      runs.push({ from: Math.max(piece.ports.from, ports.from), ranges });
    }
  }
  return runs.every(({ ranges }) => ranges === '') ? [] : runs.map(({ from, ranges }) => `${from} ${ranges}`);
}

function targetsOverlap(a: Target, b: Target): boolean {
  return a.kind === 'name' || b.kind === 'name' ? targetText(a) === targetText(b) : rangesOverlap(a.range, b.range);
}

/** A chain with everything that its content depends on. */
export interface Chain {
  readonly name: string;
  /** Differs when connections of the chain may have become forbidden; the chain's metadata holds it. */
  readonly shadow: string;
}

/** The allow chains of a set, sorted by name. */
export function chainsOf(set: L4Set): readonly Chain[] {
  const { addresses, names } = stepsOf(set);
  const byName = Map.groupBy(
    [...addresses, ...names].filter(({ rule }) => rule.action === 'allow'),
    ({ chain }) => chain,
  );
  return [...byName.keys()].sort().map((name) => {
    const steps = byName.get(name)!;
    const pieces = new Set(steps.map(({ shadow, ...piece }) => `${pieceText(piece)} ${shadow}`));
    const first = steps[0]!;
    const plain = pieces.size === 1 && first.shadow === '';
    return { name, shadow: plain ? '' : contentHash([...pieces].sort()) };
  });
}

/**
 * Chains whose connections the change from `before` to `after` ends although the chain is still there: all of them are
 * cut because some may have become forbidden. The metric with `reason="shadowed"` counts these (D14).
 */
export function shadowedChains(before: readonly Chain[], after: readonly Chain[]): readonly string[] {
  const known = new Map(before.map(({ name, shadow }) => [name, shadow]));
  return after.filter(({ name, shadow }) => known.has(name) && known.get(name) !== shadow).map(({ name }) => name);
}

/** The metadata of a chain. */
export function chainMetadata(chain: Chain): EnvoyJson['envoy.config.core.v3.Metadata'] {
  return { filterMetadata: { sandgate: { shadow: chain.shadow } } };
}
