/** What became of an ordered list of rules. */
export interface ListChange<T> {
  readonly added: readonly T[];
  readonly removed: readonly T[];
  readonly changed: readonly { readonly before: T; readonly after: T }[];
  /** Whether rules that stay as they are come in another order, which can decide otherwise. */
  readonly reordered: boolean;
}

/**
 * Compares two lists. Items of equal `content` are the same; of the rest, those of one `identity` are changed. So a rule
 * that is put before others is one addition, although the others get other numbers.
 */
export function listChange<T extends object>(
  before: readonly T[],
  after: readonly T[],
  { content, identity }: { readonly content: (item: T) => string; readonly identity: (item: T) => string },
): ListChange<T> {
  const staying = common(before.map(content), after.map(content));
  const [kept, removed] = parted(before, content, staying);
  const [keeps, added] = parted(after, content, staying);
  const gone = new Map(removed.map((item) => [identity(item), item]));
  const changed = added.flatMap((item) => {
    const old = gone.get(identity(item));
    return old === undefined ? [] : [{ before: old, after: item }];
  });
  const paired = new Set(changed.flatMap((pair) => [pair.before, pair.after]));
  return {
    added: added.filter((item) => !paired.has(item)),
    removed: removed.filter((item) => !paired.has(item)),
    changed,
    reordered: kept.some((item, index) => content(item) !== content(keeps[index]!)),
  };
}

/** How often each text is in both lists. */
function common(before: readonly string[], after: readonly string[]): ReadonlyMap<string, number> {
  const [ours, theirs] = [Map.groupBy(before, String), Map.groupBy(after, String)];
  return new Map([...ours].map(([text, all]) => [text, Math.min(all.length, theirs.get(text)?.length ?? 0)]));
}

/** The first items of each content, as many as stay, and the others. */
function parted<T>(
  items: readonly T[],
  content: (item: T) => string,
  staying: ReadonlyMap<string, number>,
): [kept: T[], others: T[]] {
  const left = new Map(staying);
  const [kept, others]: [T[], T[]] = [[], []];
  for (const item of items) {
    const text = content(item);
    const count = left.get(text) ?? 0;
    left.set(text, count - 1);
    (count > 0 ? kept : others).push(item);
  }
  return [kept, others];
}
