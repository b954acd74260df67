/** Manifests for tests of the whole: YAML is JSON too. */

export const API = 'api.example.test';

const VERSION = 'agents.kruise.io/v1alpha1';

export function sandbox(
  name: string,
  extra: { readonly id?: string; readonly spec?: object; readonly command?: readonly string[] } = {},
): object {
  const serve = "require('node:http').createServer((_, answer) => answer.end(process.env.HOSTNAME)).listen(3000)";
  return {
    apiVersion: VERSION,
    kind: 'Sandbox',
    metadata: { name, labels: { 'agents.kruise.io/sandbox-id': extra.id ?? name } },
    spec: {
      autoPausePolicy: { resume: { onIngressTraffic: {} } },
      ...extra.spec,
      template: {
        metadata: { labels: { app: name } },
        spec: {
          containers: [
            {
              name: 'main',
              image: 'test',
              command: extra.command ?? ['/opt/sandgate/node', '-e', serve],
              ...(extra.command === undefined
                ? { readinessProbe: { tcpSocket: { port: 3000 }, periodSeconds: 1 } }
                : {}),
            },
          ],
        },
      },
    },
  };
}

export function trafficPolicy(name: string, app: string, rules: readonly object[]): object {
  return policy('TrafficPolicy', name, app, { egress: { rules } });
}

export function securityProfile(name: string, app: string, rules: readonly object[]): object {
  return policy('SecurityProfile', name, app, { rules });
}

function policy(kind: string, name: string, app: string, spec: object): object {
  return { apiVersion: VERSION, kind, metadata: { name }, spec: { selector: { matchLabels: { app } }, ...spec } };
}

export function secret(name: string, apiKey: string): object {
  return { apiVersion: 'v1', kind: 'Secret', metadata: { name }, stringData: { apiKey } };
}

/** A rule that injects the Secret's key as `authorization: Bearer …`. */
export function credentialRule(secretName: string, path: string): object {
  return {
    name: 'credential',
    match: [{ domains: [API], schemes: ['http', 'https'], paths: [{ type: 'Prefix', value: path }] }],
    actions: {
      tokenTransformation: {
        credentialRef: { secret: { name: secretName } },
        apiKey: { targetHeaders: { names: ['authorization'] }, value: { template: 'Bearer {{ .Token }}' } },
      },
    },
  };
}

export function yaml(...objects: readonly object[]): string {
  return `${objects.map((object) => JSON.stringify(object, null, 2)).join('\n---\n')}\n`;
}

/** Settings that place the API at loopback and trust its certificate. */
export function settings(): string {
  return `domain: localhost\nhosts:\n  ${API}: 127.0.0.1\n  other.example.test: 127.0.0.1\ntrust: [ca.pem]\n`;
}
