/** A gateway, a sandbox's sidecar and the control plane's xDS server, real and in namespaces of their own. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { PolicyFacts } from '../../../api/facts.ts';
import { parseStaticTemplate, renderStaticTemplate } from '../../../api/static-template.ts';
import { contentHash } from '../../../base/canonical.ts';
import { silentLogger } from '../../../base/logger.ts';
import { type DnsRelay, serveDnsRelay } from '../../../dns/relay.ts';
import { writeBootstrap } from '../../../envoy/bootstrap-common.ts';
import { egressBootstrap } from '../../../envoy/bootstrap-egress.ts';
import { sidecarBootstrap } from '../../../envoy/bootstrap-sidecar.ts';
import { captureRules } from '../../../envoy/capture.ts';
import { findEnvoy } from '../../../envoy/find.ts';
import { type EnvoyProcess, superviseEnvoy } from '../../../envoy/supervise.ts';
import { egressHandler } from '../../../extproc/egress/handler.ts';
import { type ExtProcServer, serveExtProc } from '../../../extproc/server.ts';
import type { Certificate } from '../../../identity/certificates.ts';
import { openPki, type Pki } from '../../../identity/pki-directory.ts';
import { sandboxId } from '../../../identity/spiffe.ts';
import type { Compilation, CompilerSettings } from '../../../policy-compiler/compilation.ts';
import { createCompiler } from '../../../policy-compiler/compile.ts';
import { GATEWAY_SECRET, type ResourceJson } from '../../../policy-compiler/output.ts';
import { type EnvoyJson, resource, typeUrl } from '../../../proto/resource.ts';
import type { EncodedResource } from '../../../xds/view.ts';
import { Plane, until } from '../../xds/plane.ts';

const SECRET = 'envoy.extensions.transport_sockets.tls.v3.Secret';
const NAMESPACE = 'team-a';

export class Stage {
  readonly #plane: Plane;
  readonly #compiler = createCompiler();
  readonly #settings: CompilerSettings;
  /** Issues what origins present; the gateway trusts it. */
  readonly origins: Pki;
  /** Values of Secrets by `namespace/name`. */
  readonly #secrets: Readonly<Record<string, string>>;
  #compilation: Compilation | null = null;
  readonly #envoys: EnvoyProcess[] = [];
  #processor: ExtProcServer | null = null;
  #relay: DnsRelay | null = null;
  #pods: ChildProcess[] = [];
  #next = 0;
  readonly #waiting = new Map<number, (result: string) => void>();
  /** Damages the gateway's resources before they are published, to see that a test notices. */
  damage: (json: ResourceJson) => ResourceJson = (json) => json;

  private constructor(
    plane: Plane,
    origins: Pki,
    settings: CompilerSettings,
    secrets: Readonly<Record<string, string>>,
  ) {
    this.#plane = plane;
    this.origins = origins;
    this.#settings = settings;
    this.#secrets = secrets;
  }

  static async create(resolverPort: number, secrets: Readonly<Record<string, string>>): Promise<Stage> {
    const plane = await Plane.create();
    await plane.start({ removalDelayMs: 50 });
    const origins = await openPki(join(plane.directory, 'origins'));
    const roots = join(plane.directory, 'roots.pem');
    await writeFile(roots, origins.mitmCaPem);
    const { publicJwks } = await jwks(plane.pki);
    const settings: CompilerSettings = {
      trustDomain: 'sandgate.local',
      tokenIssuer: 'sandgate',
      tokenAudience: 'egress',
      tokenJwks: publicJwks,
      egressSocket: join(plane.directory, 'egress.sock'),
      gatewayCaFile: plane.pki.caFile,
      resolver: { address: '127.0.0.1', port: resolverPort, relay: join(plane.directory, 'resolver.sock') },
      originCaFile: roots,
    };
    return new Stage(plane, origins, settings, secrets);
  }

  get mitmCaPem(): string {
    return this.#plane.pki.mitmCaPem;
  }

  /** What a sidecar holds: for tests that take its place. */
  get pki(): Pki {
    return this.#plane.pki;
  }

  get egressSocket(): string {
    return this.#settings.egressSocket;
  }

  get compilation(): Compilation {
    return this.#compilation!;
  }

  get rejections(): readonly string[] {
    return this.#plane.rejections.map(({ typeUrl: type, name, detail }) => `${type} ${name}: ${detail}`);
  }

  async startGateway(): Promise<void> {
    const { directory, pki } = this.#plane;
    const processorSocket = join(directory, 'processor.sock');
    this.#processor = await serveExtProc({
      socketPath: processorSocket,
      handler: egressHandler(() => this.#compilation),
      logger: silentLogger,
    });
    const resolver = this.#settings.resolver!;
    this.#relay = await serveDnsRelay({ socketPath: resolver.relay, resolver, logger: silentLogger });
    const role = await pki.issueRoleCertificate('egress');
    const adminSocket = join(directory, 'egress-admin.sock');
    const bootstrap = egressBootstrap({
      id: 'egress',
      folder: directory,
      xdsSocket: this.#plane.socketPath,
      adminSocket,
      certificate: { certificateFile: role.certificateFile, keyFile: role.keyFile, caFile: pki.caFile },
      processorSocket,
    });
    await this.#start(await writeBootstrap(bootstrap), adminSocket, ['egress']);
  }

  async #start(
    bootstrapPath: string,
    adminSocket: string,
    listeners: readonly string[],
    prefix: readonly string[] = [],
  ) {
    const envoy = superviseEnvoy({
      binary: await findEnvoy(),
      bootstrapPath,
      adminSocket,
      logger: process.env['STAGE_LOG'] === undefined ? silentLogger : stderrLogger,
      concurrency: 1,
      drainSeconds: 2,
      listeners,
      wrap: (argv) => [...prefix, ...argv],
    });
    this.#envoys.push(envoy);
    await envoy.ready(15_000);
  }

  /** A network namespace with capture rules, a client process and a sidecar, for one sandbox of the facts. */
  async startPod(uid: string): Promise<void> {
    const pod = spawn('unshare', ['--net', process.execPath, join(import.meta.dirname, 'pod.ts')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#pods.push(pod);
    createInterface({ input: pod.stdout! }).on('line', (line) => {
      const { id, result } = JSON.parse(line) as { id: number; result: string };
      this.#waiting.get(id)?.(result);
    });
    await this.ask({ kind: 'ping' });
    const enter = ['nsenter', '--net', '--target', String(pod.pid)];
    const run = (command: string, input = '') =>
      execFileSync(enter[0]!, [...enter.slice(1), '/bin/sh', '-ec', command], { input });
    run(
      'ip link set lo up; ip link add eth0 type veth peer name eth1; ip addr add 10.244.0.2/24 dev eth0; ip link set eth0 up; ip link set eth1 up; ip route add default via 10.244.0.1',
    );
    run('nft -f -', captureRules());
    const { directory, pki } = this.#plane;
    const folder = join(directory, uid);
    await mkdir(folder);
    const { certificatePem, keyPem } = await pki.issueSidecarCertificate({ namespace: NAMESPACE, uid });
    const certificate = {
      certificateFile: join(folder, 'sidecar.crt'),
      keyFile: join(folder, 'sidecar.key'),
      caFile: pki.caFile,
    };
    await writeFile(certificate.certificateFile, certificatePem);
    await writeFile(certificate.keyFile, keyPem.reveal());
    const adminSocket = join(folder, 'admin.sock');
    const bootstrap = sidecarBootstrap({
      id: uid,
      folder,
      xdsSocket: this.#plane.socketPath,
      adminSocket,
      gatewaySocket: this.#settings.egressSocket,
      certificate,
    });
    await this.#start(await writeBootstrap(bootstrap), adminSocket, ['outbound', 'dns'], enter);
  }

  /** Publishes the facts and, with `settle`, waits until both Envoys have acknowledged all of it. */
  async publish(facts: PolicyFacts, settle = true): Promise<void> {
    const compilation = this.#compiler.compile(facts, this.#settings);
    this.#compilation = compilation;
    const { pki } = this.#plane;
    const credentials = [...compilation.credentials].map(([name, { namespace, name: secret, template }]) => {
      const value = this.#secrets[`${namespace}/${secret}`]!;
      return secretOf(name, {
        genericSecret: { secret: { inlineString: renderStaticTemplate(parseStaticTemplate(template)!, value) } },
      });
    });
    const leaves = await Promise.all(
      compilation.leaves.map(async (name) => {
        const { certificatePem, keyPem } = await pki.issueLeaf(name);
        return certificateOf(`leaf:${name}`, { certificatePem, keyPem });
      }),
    );
    const gateway = certificateOf(GATEWAY_SECRET, await pki.issueRoleCertificate('egress'));
    const tokens = await pki.tokens();
    let sequence = this.#plane.publish('egress', [
      ...compilation.egress.map((json) => encode(this.damage(json))),
      ...credentials,
      ...leaves,
      gateway,
    ]);
    for (const { uid } of facts.sandboxes) {
      const { token } = await tokens.issue({
        uid,
        pod: `pod-${uid}`,
        spiffeId: sandboxId({ namespace: NAMESPACE, uid }),
      });
      const set = compilation.sidecarSets.get(compilation.subjects.get(uid)!.l4Set)!;
      const secret = secretOf('sandbox-token', { genericSecret: { secret: { inlineString: token.reveal() } } });
      sequence = this.#plane.publish(uid, [...set.map(encode), secret]);
    }
    if (settle) {
      for (const name of ['egress', ...facts.sandboxes.map(({ uid }) => uid).slice(0, this.#pods.length)]) {
        await until(
          () => this.#plane.settled.includes(`${name} ${sequence}`),
          8000,
          `settlement of ${name}: ${this.rejections}`,
        );
      }
    }
  }

  /** Has the pod do something; see `pod.ts`. */
  ask(command: Readonly<Record<string, unknown>>): Promise<string> {
    this.#next += 1;
    const id = this.#next;
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve('no answer from the pod'), 8000);
      this.#waiting.set(id, (result) => {
        clearTimeout(timer);
        resolve(result);
      });
      this.#pods.at(-1)!.stdin!.write(`${JSON.stringify({ ...command, id })}\n`);
    });
  }

  /** An admin request to one of the Envoys: 0 is the gateway. */
  async stats(index: number, filter: string): Promise<string> {
    const path = join(this.#plane.directory, index === 0 ? 'egress-admin.sock' : 's1/admin.sock');
    return execFileSync('curl', ['-s', '--unix-socket', path, `http://admin/stats?filter=${filter}`], {
      encoding: 'utf8',
    });
  }

  async close(): Promise<void> {
    await Promise.all(this.#envoys.map((envoy) => envoy.stop()));
    for (const pod of this.#pods) {
      pod.kill('SIGKILL');
      await once(pod, 'exit');
    }
    await this.#processor?.close();
    await this.#relay?.close();
    await this.#plane.close();
  }
}

async function jwks(pki: Pki): Promise<{ publicJwks: string }> {
  const tokens = await pki.tokens();
  return { publicJwks: JSON.stringify(tokens.publicJwks()) };
}

function encode(json: ResourceJson): EncodedResource {
  const bytes = resource(json.type, json.json);
  return {
    typeUrl: typeUrl(json.type),
    name: json.name,
    version: contentHash(bytes),
    bytes,
    sensitive: false,
    origins: json.origins,
    requires: json.requires,
  };
}

function certificateOf(
  name: string,
  { certificatePem, keyPem }: Pick<Certificate, 'certificatePem' | 'keyPem'>,
): EncodedResource {
  return secretOf(name, {
    tlsCertificate: {
      certificateChain: { inlineString: certificatePem },
      privateKey: { inlineString: keyPem.reveal() },
    },
  });
}

function secretOf(name: string, content: Omit<EnvoyJson[typeof SECRET], 'name'>): EncodedResource {
  const bytes = resource(SECRET, { name, ...content });
  return {
    typeUrl: typeUrl(SECRET),
    name,
    version: contentHash(bytes),
    bytes,
    sensitive: true,
    origins: [],
    requires: [],
  };
}

const stderrLogger = {
  ...silentLogger,
  warn: (fields: object, message: string) => void process.stderr.write(`${message} ${JSON.stringify(fields)}\n`),
  error: (fields: object, message: string) => void process.stderr.write(`${message} ${JSON.stringify(fields)}\n`),
  child: () => stderrLogger,
};
