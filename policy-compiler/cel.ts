import type { EnvoyJson } from '../proto/resource.ts';

/** A CEL expression as its syntax tree: Envoy's RBAC takes no source text. */
export type CelExpr = EnvoyJson['google.api.expr.v1alpha1.Expr'];

export function ident(name: string): CelExpr {
  return { identExpr: { name } };
}

export function text(value: string): CelExpr {
  return { constExpr: { stringValue: value } };
}

/** `operand.field`. */
export function field(operand: CelExpr, name: string): CelExpr {
  return { selectExpr: { operand, field: name } };
}

/** A global function or an operator such as `_==_`. */
export function call(name: string, ...args: readonly CelExpr[]): CelExpr {
  return { callExpr: { function: name, args: [...args] } };
}

/** `target.method(args)`. */
export function method(target: CelExpr, name: string, ...args: readonly CelExpr[]): CelExpr {
  return { callExpr: { target, function: name, args: [...args] } };
}

/** Numbers every node, which Envoy's evaluator needs. */
export function numbered(expression: CelExpr): CelExpr {
  let next = 0;
  const visit = (node: CelExpr): CelExpr => {
    next += 1;
    const id = String(next);
    if (node.selectExpr !== undefined) {
      const { operand, ...rest } = node.selectExpr;
      return { ...node, id, selectExpr: { ...rest, ...(operand === undefined ? {} : { operand: visit(operand) }) } };
    }
    if (node.callExpr !== undefined) {
      const { target, args = [], ...rest } = node.callExpr;
      const visited = target === undefined ? {} : { target: visit(target) };
      return { ...node, id, callExpr: { ...rest, ...visited, args: args.map(visit) } };
    }
    return { ...node, id };
  };
  return visit(expression);
}

const host = method(field(ident('request'), 'host'), 'lowerAscii');
const serverName = field(ident('connection'), 'requested_server_name');
const port = call('string', field(ident('destination'), 'port'));

/**
 * `request.host.lowerAscii() == connection.requested_server_name ||
 *  request.host.lowerAscii() == connection.requested_server_name + ':' + string(destination.port)`
 */
export const HOST_IS_SERVER_NAME: CelExpr = numbered(
  call(
    '_||_',
    call('_==_', host, serverName),
    call('_==_', host, call('_+_', call('_+_', serverName, text(':')), port)),
  ),
);

/** `metadata.filter_metadata['envoy.filters.http.jwt_authn']['sbx']['spiffe'] == connection.uri_san_peer_certificate` */
export const TOKEN_IS_CERTIFICATE: CelExpr = numbered(
  call(
    '_==_',
    call(
      '_[_]',
      call(
        '_[_]',
        call('_[_]', field(ident('metadata'), 'filter_metadata'), text('envoy.filters.http.jwt_authn')),
        text('sbx'),
      ),
      text('spiffe'),
    ),
    field(ident('connection'), 'uri_san_peer_certificate'),
  ),
);

/** `!request.host.endsWith(':' + string(destination.port))` */
export const PORT_IS_OTHER: CelExpr = numbered(
  call('!_', method(field(ident('request'), 'host'), 'endsWith', call('_+_', text(':'), port))),
);
