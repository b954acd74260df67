import { chmod, rm } from 'node:fs/promises';
import * as grpc from '@grpc/grpc-js';
import { errorText } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { counter, gauge, histogram } from '../base/metrics.ts';
import { service } from '../proto/service.ts';
import type { ProcessingResponse } from './answer.ts';
import { Exchange, type Handler } from './exchange.ts';
import type { ProcessingRequest } from './request.ts';

export interface ExtProcOptions {
  readonly socketPath: string;
  readonly handler: Handler;
  readonly logger: Logger;
}

export interface ExtProcServer {
  close(): Promise<void>;
}

const streamsTotal = counter('sandgate_ext_proc_streams_total', 'Requests given to the external processor', ['result']);
const openStreams = gauge('sandgate_ext_proc_streams', 'Requests that wait for their answer');
const answerSeconds = histogram(
  'sandgate_ext_proc_seconds',
  'Time from the first message of a request to its last answer',
  [],
  [0.0005, 0.002, 0.01, 0.05, 0.5, 5, 60],
);

/**
 * Node ends a connection whose peer resets many streams. Envoy resets one for every client that leaves, and with one
 * connection for all requests a storm of leaving clients would end everybody else's (findings on ext_proc and Node), so
 * the guard is put out of reach. The peer is our own Envoy on a socket that only this user may open.
 */
const RESET_GUARD_OFF = { streamResetBurst: 1_000_000_000, streamResetRate: 1_000_000_000 };

const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

/** Serves the external processor on a UNIX socket of mode 0600. Throws when the socket cannot be bound. */
export async function serveExtProc({ socketPath, handler, logger }: ExtProcOptions): Promise<ExtProcServer> {
  await rm(socketPath, { force: true });
  const server = new grpc.Server({
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': 100_000,
    // Statistics that nothing reads, kept for each stream.
    'grpc.enable_channelz': 0,
  });
  raiseResetGuard(server);
  server.addService(service('envoy.service.ext_proc.v3.ExternalProcessor'), {
    Process: (call: grpc.ServerDuplexStream<ProcessingRequest, ProcessingResponse>) => serve(call, handler, logger),
  });
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(`unix:${socketPath}`, grpc.ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    );
  });
  await chmod(socketPath, 0o600);
  return {
    async close() {
      server.forceShutdown();
      await rm(socketPath, { force: true });
    },
  };
}

/** grpc-js has no option for it; a test fails when this name of it is gone. */
function raiseResetGuard(server: grpc.Server): void {
  const { commonServerOptions } = server as unknown as { readonly commonServerOptions?: object };
  if (commonServerOptions === undefined) {
    throw new Error('grpc-js has changed: the options of its HTTP/2 server were not found');
  }
  Object.assign(commonServerOptions, RESET_GUARD_OFF);
}

function serve(
  call: grpc.ServerDuplexStream<ProcessingRequest, ProcessingResponse>,
  handler: Handler,
  logger: Logger,
): void {
  const done = answerSeconds.startTimer();
  openStreams.inc();
  let result = 'cancelled';
  const exchange = new Exchange(handler, {
    send: (message) => void call.write(message),
    end: (error) => {
      result = error === null ? (result === 'failed' ? 'failed' : 'answered') : 'out-of-order';
      if (error === null) {
        call.end();
      } else {
        logger.warn({ error }, 'an ext_proc stream was refused');
        call.emit('error', { code: grpc.status.FAILED_PRECONDITION, details: error });
      }
    },
    failed: (error) => {
      result = 'failed';
      logger.error({ error: errorText(error) }, 'a decision failed; the request was refused');
    },
  });
  let counted = false;
  const finish = () => {
    exchange.cancel();
    if (!counted) {
      counted = true;
      openStreams.dec();
      streamsTotal.inc({ result });
      done();
    }
  };
  call.on('data', (message: ProcessingRequest) => exchange.receive(message));
  call.on('end', finish);
  call.on('cancelled', finish);
  call.on('error', finish);
  call.on('close', finish);
}
