import { contentHash } from '../../base/canonical.ts';
import { ManualClock } from '../../base/clock.ts';
import type { DeltaRequest, DeltaResponse } from '../../xds/messages.ts';
import { ClientStream } from '../../xds/stream.ts';
import type { Doubts } from '../../xds/stream-events.ts';
import type { EncodedResource, Rejection, ResourceKey, ResourceView } from '../../xds/view.ts';

/** A resource whose bytes are a text; the version is their hash. */
export function made(
  typeUrl: string,
  name: string,
  content: string | Uint8Array,
  requires: readonly ResourceKey[] = [],
  sensitive = false,
): EncodedResource {
  const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content;
  const origins = [{ kind: 'Test', namespace: 'a', name }];
  return { typeUrl, name, version: contentHash(bytes), bytes, sensitive, origins, requires };
}

/** A view over a list of resources. */
export function viewOf(resources: readonly EncodedResource[]): ResourceView {
  const types = new Map<string, Map<string, EncodedResource>>();
  for (const resource of [...resources].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const names = types.get(resource.typeUrl) ?? new Map<string, EncodedResource>();
    types.set(resource.typeUrl, names.set(resource.name, resource));
  }
  return {
    names: (typeUrl) => types.get(typeUrl)?.keys() ?? [],
    get: (typeUrl, name) => types.get(typeUrl)?.get(name),
  };
}

/** A {@link ClientStream} whose events are kept, for tests that play the client by hand. */
export class Recorded {
  readonly clock = new ManualClock(1000);
  readonly sent: DeltaResponse[] = [];
  readonly rejections: Omit<Rejection, 'spiffeId'>[] = [];
  readonly cleared: ResourceKey[] = [];
  readonly settled: number[] = [];
  readonly wakes: number[] = [];
  readonly notices: string[] = [];
  readonly stream: ClientStream;
  #sequence = 0;

  constructor(removalDelayMs = 0, doubts: Doubts = new Map()) {
    this.stream = new ClientStream(
      {
        send: (response) => void this.sent.push(response),
        rejected: (rejection) => void this.rejections.push(rejection),
        cleared: (key) => void this.cleared.push(key),
        settled: (sequence) => void this.settled.push(sequence),
        wakeAfter: (milliseconds) => void this.wakes.push(milliseconds),
        notice: (message) => void this.notices.push(message),
      },
      { clock: this.clock, removalDelayMs, doubts },
    );
  }

  publish(...resources: EncodedResource[]): this {
    this.#sequence += 1;
    this.stream.update(viewOf(resources), this.#sequence);
    return this;
  }

  request(typeUrl: string, request: Omit<DeltaRequest, 'typeUrl'> = {}): this {
    this.stream.receive({ typeUrl, ...request });
    return this;
  }

  subscribe(typeUrl: string, ...names: string[]): this {
    return this.request(typeUrl, { resourceNamesSubscribe: names });
  }

  ack(response: DeltaResponse, more: Partial<DeltaRequest> = {}): this {
    return this.request(response.typeUrl, { responseNonce: response.nonce, ...more });
  }

  nack(response: DeltaResponse, message: string): this {
    return this.ack(response, { errorDetail: { code: 13, message } });
  }

  /** What was sent since the last call, as `type label:+name` and `-name`. */
  take(): DeltaResponse[] {
    return this.sent.splice(0);
  }
}

/** `+name` for each resource and `-name` for each removal of a response. */
export function names(response: DeltaResponse | undefined): string {
  const parts = [
    ...(response?.resources ?? []).map(({ name }) => `+${name}`),
    ...(response?.removedResources ?? []).map((name) => `-${name}`),
  ];
  return response === undefined ? 'nothing' : parts.join(' ');
}
