import { quote, quoteAll } from './shell.ts';

/** A file of a secret or ConfigMap volume. */
export interface VolumeFile {
  /** Relative, without `..`. */
  readonly path: string;
  readonly content: Uint8Array;
  /** Permission bits. */
  readonly mode: number;
}

/** Something mounted into a container. Paths in the container are absolute and normalised. */
export type ContainerMount =
  /** A folder or file of this machine; `source` is absolute. */
  | { readonly kind: 'bind'; readonly path: string; readonly source: string; readonly readOnly: boolean }
  /** Files that exist in memory only; with `part`, that file or folder among them instead of all. */
  | {
      readonly kind: 'files';
      readonly path: string;
      readonly files: readonly VolumeFile[];
      readonly part: string | null;
    };

/** Everything that the set-up of one container depends on. */
export interface ContainerPlan {
  /** Folder of the container on this machine: the writable layer of a plane of root lies there. */
  readonly folder: string;
  readonly byRoot: boolean;
  readonly hostname: string;
  readonly podAddress: string;
  /** Id of the sandbox's user in the node namespace. */
  readonly outerUid: number;
  /** The same user as the container sees it. */
  readonly uid: number;
  readonly gid: number;
  readonly env: Readonly<Record<string, string>>;
  readonly workingDir: string;
  readonly mounts: readonly ContainerMount[];
  readonly argv: readonly string[];
}

/** Where the container's root is put together: a mount point of every machine that no directory of ours lies below. */
const ROOT = '/sys';
/** Bytes that a container may write into its root outside volumes. */
const ROOT_SIZE = '1g';
const DEVICES = ['null', 'zero', 'full', 'random', 'urandom', 'tty'];
/** Nothing of /etc but these is taken over: it holds keys and tokens on many machines. */
const ETC_FILES =
  'bash.bashrc gai.conf host.conf inputrc ld.so.cache ld.so.conf localtime login.defs magic mime.types nsswitch.conf ' +
  'os-release profile protocols rpc services shells ssl/openssl.cnf timezone';
const ETC_FOLDERS =
  'alternatives ca-certificates crypto-policies fonts java-* ld.so.conf.d pki/ca-trust pki/tls/certs perl python3* ' +
  'ssl/certs terminfo';

/**
 * The script that turns a fresh mount, pid, ipc and UTS namespace into a container and becomes its first process. It
 * runs with the node's capabilities (none of them the machine's), reads nothing that a sandbox wrote before it has
 * given them up, and takes only programs of this machine: volumes may not cover system folders (see `pod-check.ts`).
 *
 * File descriptor 3 is the status pipe: `ok` once the container's own program is about to start, otherwise what went
 * wrong; 4 becomes standard error then. The text holds the container's environment and secret files, so it goes through standard input and nowhere else.
 */
export function setupScript(plan: ContainerPlan): string {
  const body = [
    'set -eu',
    'exec 2>&3',
    'umask 022',
    'ulimit -c 0',
    'echo 500 > /proc/self/oom_score_adj',
    // An ordinary user may call sethostname here but not write the file; without the program the name is left alone.
    `hostname ${quote(plan.hostname)} || :`,
    `mount -t tmpfs -o mode=755,nosuid,nodev,size=${ROOT_SIZE} sandgate ${ROOT}`,
    `cd ${ROOT}`,
    'mkdir -p usr proc dev etc home media mnt opt root run srv sys tmp var/cache var/lib var/log var/tmp .old',
    'ln -s ../run var/run',
    ...systemFolders(plan),
    ...kernelFolders(),
    ...etcFolder(plan),
    'chmod 1777 tmp var/tmp; chmod 700 root',
    ...(plan.byRoot
      ? [`chown ${plan.outerUid}:${plan.outerUid} . etc home media mnt opt root run srv tmp var var/*`]
      : []),
    'pivot_root . .old',
    'cd /',
    ...plan.mounts.flatMap((mount, index) => mountLines(mount, plan, index)),
    'umount -l /.old',
    'rmdir /.old',
    ...dropLines(plan),
  ];
  // One function, so that a script that was cut off does nothing.
  return `setup() {\n${body.join('\n')}\n}\nsetup\n`;
}

function systemFolders(plan: ContainerPlan): string[] {
  // A mount point can be neither renamed nor replaced from inside, a link could.
  const bindEach = [
    'for name in bin sbin lib lib32 lib64 libx32; do',
    '  if [ -L "/$name" ] && [ -d "usr/$name" ]; then mkdir "$name"; mount --bind "usr/$name" "$name"',
    '  elif [ -d "/$name" ]; then mkdir "$name"; mount --rbind "/$name" "$name"; mount -o remount,bind,ro,nosuid "$name"; fi',
    'done',
  ];
  const readOnly = ['mount --rbind /usr usr', 'mount -o remount,bind,ro,nosuid usr'];
  if (!plan.byRoot) {
    return [...readOnly, ...bindEach];
  }
  const overlay = 'mount -t overlay -o nosuid,userxattr,lowerdir=/usr,upperdir=upper,workdir=work sandgate';
  const own = `-exec chown ${plan.outerUid}:${plan.outerUid} {} +`;
  return [
    `cd ${quote(plan.folder)}`,
    // Where the plane's folder cannot hold an upper layer, as on another overlay, the folders stay read-only.
    `if ${overlay} ${ROOT}/usr; then`,
    `  cd ${ROOT}`,
    // Programs and packages may be added where administrators add them; the system's own stay as they are.
    `  if [ -d usr/local ]; then find usr/local -xdev -maxdepth 3 -type d ${own} || :; fi`,
    'else',
    `  cd ${ROOT}`,
    ...readOnly.map((line) => `  ${line}`),
    'fi',
    ...bindEach,
  ];
}

function kernelFolders(): string[] {
  return [
    'mount -t proc -o nosuid,nodev,noexec sandgate proc',
    // proc/sys/user stays: there the sandbox's own limit of namespaces is set to none.
    'for name in abi debug dev fs kernel net vm; do',
    '  if [ -d "proc/sys/$name" ]; then mount --bind "proc/sys/$name" "proc/sys/$name"; mount -o remount,bind,ro "proc/sys/$name"; fi',
    'done',
    'mount -t tmpfs -o mode=755,nosuid,size=1m sandgate dev',
    `for name in ${DEVICES.join(' ')}; do : > "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done`,
    'mkdir dev/pts dev/shm',
    'mount -t devpts -o newinstance,ptmxmode=0666,mode=620,nosuid,noexec sandgate dev/pts',
    'mount -t tmpfs -o mode=1777,nosuid,nodev,size=256m sandgate dev/shm',
    'ln -s pts/ptmx dev/ptmx',
    'ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr',
  ];
}

function etcFolder(plan: ContainerPlan): string[] {
  const users = [`root:x:0:0:root:/root:/bin/sh`, 'nobody:x:65534:65534:nobody:/:/usr/sbin/nologin'];
  const groups = ['root:x:0:', 'nogroup:x:65534:'];
  if (plan.uid !== 0 && plan.uid !== 65_534) {
    users.push(`sandbox:x:${plan.uid}:${plan.gid}:sandbox:/:/bin/sh`);
  }
  if (plan.gid !== 0 && plan.gid !== 65_534) {
    groups.push(`sandbox:x:${plan.gid}:`);
  }
  const hosts = ['127.0.0.1 localhost', '::1 localhost ip6-localhost', `${plan.podAddress} ${plan.hostname}`];
  const put = (name: string, lines: readonly string[]): string =>
    `printf '%s\\n' ${lines.map(quote).join(' ')} > etc/${name}`;
  return [
    'mkdir etc/ssl etc/pki',
    `for name in ${ETC_FILES}; do if [ -f "/etc/$name" ] && [ -r "/etc/$name" ]; then cp -L "/etc/$name" "etc/$name"; fi; done`,
    `for name in $(cd /etc && for each in ${ETC_FOLDERS}; do if [ -d "$each" ]; then echo "$each"; fi; done); do`,
    '  mkdir -p "etc/$name"; mount --rbind "/etc/$name" "etc/$name"; mount -o remount,bind,ro,nosuid "etc/$name"',
    'done',
    put('passwd', users),
    put('group', groups),
    put('hosts', hosts),
    put('hostname', [plan.hostname]),
    // The address only has to be one that leaves the sandbox: whatever goes to port 53 is captured.
    put('resolv.conf', ['nameserver 10.244.0.1', 'options ndots:0 timeout:3']),
    'mkdir etc/sandgate',
  ];
}

function mountLines(mount: ContainerMount, plan: ContainerPlan, index: number): string[] {
  const at = quote(mount.path);
  if (mount.kind === 'bind') {
    const source = quote(`/.old${mount.source}`);
    return [
      `if [ -d ${source} ]; then mkdir -p ${at}; else mkdir -p "$(dirname ${at})"; : > ${at}; fi`,
      `mount --bind ${source} ${at}`,
      `mount -o remount,bind,nosuid,nodev${mount.readOnly ? ',ro' : ''} ${at}`,
    ];
  }
  const base = mount.part === null ? mount.path : `/.files${index}`;
  const whole = quote(base);
  const part = quote(`${base}/${mount.part}`);
  return [
    `mkdir -p ${whole}`,
    `mount -t tmpfs -o mode=755,nosuid,nodev,size=16m sandgate ${whole}`,
    ...mount.files.flatMap(({ path, content, mode }) => {
      const file = quote(`${base}/${path}`);
      const folder = path.includes('/') ? [`mkdir -p "$(dirname ${file})"`] : [];
      return [...folder, `printf '${octal(content)}' > ${file}`, `chmod ${mode.toString(8)} ${file}`];
    }),
    ...(plan.byRoot ? [`chown -R ${plan.outerUid}:${plan.outerUid} ${whole}`] : []),
    ...(mount.part === null
      ? []
      : [
          `if [ -d ${part} ]; then mkdir -p ${at}; else mkdir -p "$(dirname ${at})"; : > ${at}; fi`,
          `mount --bind ${part} ${at}`,
          `umount -l ${whole}`,
          `rmdir ${whole}`,
        ]),
    `mount -o remount,bind,ro,nosuid,nodev ${at}`,
  ];
}

/** Bytes as octal escapes of printf: text and binary alike, safe between single quotes. */
function octal(content: Uint8Array): string {
  return Array.from(content, (byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
}

/** Gives up the user, then every capability, and only then looks at anything that the Pod's author wrote. */
function dropLines(plan: ContainerPlan): string[] {
  const become = plan.byRoot
    ? ['--reuid', `${plan.outerUid}`, '--regid', `${plan.outerUid}`, '--clear-groups']
    : ['--keep-groups'];
  const map = [`--map-user=${plan.uid}`, `--map-group=${plan.gid}`, ...(plan.uid === 0 ? [] : ['--keep-caps'])];
  const inside = `echo 0 > /proc/sys/user/max_user_namespaces && exec ${quoteAll(dropCapabilities())} /bin/sh -c "$SANDGATE_START" sandgate "$@"`;
  return [
    `SANDGATE_START=${quote(startScript(plan.workingDir))}`,
    `SANDGATE_ENV=${quote(exportLines(plan.env))}`,
    'export SANDGATE_START SANDGATE_ENV',
    `exec setpriv ${quoteAll(become)} -- unshare --user ${quoteAll(map)} -- /bin/sh -c ${quote(inside)} ${quoteAll(['sandgate', ...plan.argv])} </dev/null`,
  ];
}

/**
 * `setpriv` with arguments that leave no capability and no way to one. Without `bounding`, for a process that has no
 * capability any more, the bounding set stays; nothing can be gained from it.
 */
export function dropCapabilities(bounding = true): string[] {
  const set = bounding ? ['--bounding-set', '-all', '--ambient-caps', '-all'] : [];
  return ['setpriv', '--no-new-privs', ...set, '--inh-caps', '-all', '--'];
}

/** The last lines, without any capability: environment, folder, and the program itself (`missing` when there is none). */
function startScript(workingDir: string): string {
  return [
    ...environmentLines(),
    `mkdir -p ${quote(workingDir)} && cd ${quote(workingDir)} || exit 126`,
    'unset PWD OLDPWD',
    'command -v -- "$1" >/dev/null || { echo "missing $1" >&3; exit 127; }',
    'echo ok >&3',
    'exec 2>&4 3>&- 4>&-',
    'exec "$@"',
  ].join('\n');
}

/** Lines that replace the environment by the one in `SANDGATE_ENV`. */
export function environmentLines(): string[] {
  return ['unset LC_ALL PWD OLDPWD SHLVL SANDGATE_START', 'eval "$SANDGATE_ENV"', 'unset SANDGATE_ENV'];
}

/** Shell text that exports variables; the names are identifiers. */
export function exportLines(env: Readonly<Record<string, string>>): string {
  return Object.entries(env)
    .map(([name, value]) => `export ${name}=${quote(value)}`)
    .join('\n');
}
