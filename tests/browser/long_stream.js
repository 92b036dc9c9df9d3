// The whole page, but for the network: a stream that is made in the page, and an answer to what is to be rendered.
// What stands for __GIVEN__ is put in by test_5_long_text.py.
delete globalThis.SharedWorker;
const { paragraph, chunks, every, length, sha256 } = __GIVEN__;
const points = [...paragraph].length;
const words = 'The keeper counted the ships and **wrote** them down. '.repeat(4);
const html = `<h2>Ships</h2><p>${words}</p><ul><li>${words}</li><li>${words}</li></ul>`;
const real = globalThis.fetch;
let asked = 0;
const frames = (id) => {
  let n = 0;
  const frame = (type, data) => `id: ${id}:1-${(n += 1)}\nevent: ${type}\ndata: ${JSON.stringify({ task_id: id, ...data })}\n\n`;
  return { begin: () => frame('status', { state: 'processing', attempt: 1, at: new Date().toISOString() }),
    chunk: (i, many) => frame('chunk', { offset: i * points, text: paragraph.repeat(many), progress: i / chunks })
      + (i % 250 === 0 ? frame('checkpoint', { offset: i * points, progress: i / chunks, saved_at: new Date().toISOString() }) : ''),
    end: () => frame('done', { state: 'completed', length, sha256, finished_at: new Date().toISOString(), result: '/' }) };
};
const produce = (id) => (controller) => {
  const say = (text) => controller.enqueue(new TextEncoder().encode(text));
  const made = frames(id);
  const began = performance.now();
  let sent = 0;
  say('retry: 1000\n\n' + made.begin());
  const tick = () => {
    const due = every === 0 ? chunks : Math.min(chunks, Math.floor((performance.now() - began) / every));
    const many = every === 0 ? 300 : 1;
    let out = '';
    for (; sent < due; sent += Math.min(many, chunks - sent)) out += made.chunk(sent, Math.min(many, chunks - sent));
    if (out !== '') say(out);
    if (sent < chunks) return setTimeout(tick, 2);
    say(made.end());
    return controller.close();
  };
  tick();
};
globalThis.fetch = (url, how) => {
  const address = String(url);
  if (address.includes('/rendered?')) return Promise.resolve(new Response(html, { headers: { 'Content-Type': 'text/html' } }));
  if (!address.startsWith('/api/stream')) return real(url, how);
  if ((asked += 1) > 1) return Promise.resolve(new Response(null, { status: 204 }));
  const id = new URL(address, location.href).searchParams.get('task');
  return Promise.resolve(new Response(new ReadableStream({ start: produce(id) }), { headers: { 'Content-Type': 'text/event-stream' } }));
};
