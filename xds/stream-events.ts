import type { Clock } from '../base/clock.ts';
import type { DeltaResponse } from './messages.ts';
import type { Rejection, ResourceKey } from './view.ts';

/** What a stream tells its owner. */
export interface StreamEvents {
  send(response: DeltaResponse): void;
  rejected(rejection: Omit<Rejection, 'spiffeId'>): void;
  /** A refused resource has changed, or is gone from the view. */
  cleared(key: ResourceKey): void;
  /** Nothing is left to send or to be acknowledged for this publication. */
  settled(sequence: number): void;
  /** Asks for `ClientStream.pump` after this many milliseconds. */
  wakeAfter(milliseconds: number): void;
  /** A protocol event worth a log line; never any content of a resource or of a client's text. */
  notice(message: string, fields: object): void;
}

export interface StreamOptions {
  readonly clock: Clock;
  /** How long a resource stays after nothing refers to it any more, for requests in flight; milliseconds. */
  readonly removalDelayMs: number;
  /** What the caller's last stream left in doubt, see `ClientStream.doubts`. */
  readonly doubts?: Doubts;
}

/** Names by type. */
export type Doubts = ReadonlyMap<string, ReadonlySet<string>>;
