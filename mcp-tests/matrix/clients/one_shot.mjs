// A command that makes one call and ends: the Inspector's. BRIDGE is its command line, as JSON; URL, TOOL stand in it.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { serve } from './line.mjs';

await serve(async url => async (tool, args) => {
  const [command, ...parts] = JSON.parse(process.env.BRIDGE).map(part => part.replace('URL', url).replace('TOOL', tool));
  const given = Object.entries(args).flatMap(([name, value]) => ['--tool-arg', `${name}=${value}`]);
  const { stdout } = await promisify(execFile)(command, [...parts, ...given]);
  return JSON.parse(stdout);
});
