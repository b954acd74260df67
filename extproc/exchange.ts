import {
  type Answer,
  encodeAnswer,
  encodeExtend,
  encodeReadBody,
  type Phase,
  type ProcessingResponse,
} from './answer.ts';
import { type ProcessingRequest, type RequestHead, readHead } from './request.ts';

/** What a handler may do while it decides. */
export interface HandlerContext {
  /** Aborted when Envoy has given the request up: the client left, or a deadline passed. */
  readonly signal: AbortSignal;
  /** Asks Envoy once to wait this many seconds for the answer. */
  extend(seconds: number): void;
  /** The whole body, empty when there is none. Envoy holds the request meanwhile. */
  readBody(): Promise<Uint8Array>;
}

/** Decides one request. A rejection is answered as a failure: the request does not pass. */
export type Handler = (head: RequestHead, context: HandlerContext) => Promise<Answer>;

/** The gRPC side of an exchange. */
export interface ExchangeOutput {
  send(message: ProcessingResponse): void;
  /** Half-closes after the last answer, or ends with an error that makes Envoy fail the request. */
  end(error: string | null): void;
  failed(error: unknown): void;
}

/** Answer to a request whose handler failed: closed, and saying so (D10). */
export const FAILED: Answer = {
  kind: 'respond',
  status: 500,
  headers: { 'content-type': 'application/json', 'x-sandgate-reason': 'processor-failed' },
  body: JSON.stringify({
    error: 'processor_failed',
    policy: '',
    rule: '',
    reason: 'processor-failed',
    retryable: true,
  }),
  details: 'sandgate_processor_failed',
};

/** Given to every abort: the default reason is an exception with a stack, made anew for each request. */
const OVER = new Error('the stream has ended');

/**
 * The machine of one ext_proc stream, which is one request: headers, then perhaps the body, one answer of its own type
 * for each, and the end. Anything out of order ends the stream with an error, and Envoy refuses the request.
 */
export class Exchange {
  readonly #handler: Handler;
  readonly #output: ExchangeOutput;
  #abort: AbortController | null = null;
  #phase: Phase = 'headers';
  #state: 'waiting' | 'deciding' | 'over' = 'waiting';
  #head: RequestHead | null = null;
  #body: PromiseWithResolvers<Uint8Array> | null = null;
  #extended = false;

  constructor(handler: Handler, output: ExchangeOutput) {
    this.#handler = handler;
    this.#output = output;
  }

  /** Takes one message of Envoy. */
  receive(message: ProcessingRequest): void {
    if (this.#state === 'over') {
      return;
    }
    const head = readHead(message);
    if (head !== null && this.#state === 'waiting') {
      this.#head = head;
      this.#state = 'deciding';
      void this.#decide(head);
    } else if (message.requestBody != null && this.#body !== null && this.#phase === 'headers') {
      this.#phase = 'body';
      this.#extended = false;
      this.#body.resolve(message.requestBody.body ?? new Uint8Array());
    } else {
      this.#over('a message came out of order');
    }
  }

  /** Envoy has closed or cancelled the stream. */
  cancel(): void {
    if (this.#state !== 'over') {
      this.#state = 'over';
      this.#body?.reject(new Error('cancelled'));
      this.#abort?.abort(OVER);
    }
  }

  /** Made when a handler asks for it, since most decide at once. */
  #signal(): AbortSignal {
    if (this.#abort === null) {
      this.#abort = new AbortController();
      if (this.#isOver()) {
        this.#abort?.abort(OVER);
      }
    }
    return this.#abort.signal;
  }

  async #decide(head: RequestHead): Promise<void> {
    let answer: Answer;
    try {
      const signal = () => this.#signal();
      answer = await this.#handler(head, {
        get signal() {
          return signal();
        },
        extend: (seconds) => this.#extend(seconds),
        readBody: () => this.#readBody(),
      });
    } catch (error) {
      if (this.#isOver()) {
        return;
      }
      this.#output.failed(error);
      answer = FAILED;
    }
    if (!this.#isOver()) {
      this.#output.send(encodeAnswer(answer, this.#phase));
      this.#over(null);
    }
  }

  #isOver(): boolean {
    return this.#state === 'over';
  }

  #extend(seconds: number): void {
    if (!this.#extended && !this.#isOver()) {
      this.#extended = true;
      this.#output.send(encodeExtend(seconds));
    }
  }

  #readBody(): Promise<Uint8Array> {
    if (this.#head?.endOfStream === true) {
      return Promise.resolve(new Uint8Array());
    }
    if (this.#body === null) {
      this.#body = Promise.withResolvers();
      this.#body.promise.catch(() => {}); // A handler that gave up does not wait for it.
      if (this.#isOver()) {
        this.#body.reject(new Error('cancelled'));
      } else {
        this.#output.send(encodeReadBody());
      }
    }
    return this.#body.promise;
  }

  #over(error: string | null): void {
    this.#state = 'over';
    this.#body?.reject(new Error('the stream has ended'));
    this.#output.end(error);
    this.#abort?.abort(OVER);
  }
}
