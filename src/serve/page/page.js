// The page of a run: pictures and records come by a WebSocket, all else is asked of the API in openapi.json.
// Whatever a run or a person calls something becomes text, never HTML.

// Okabe and Ito's colours, which the colour-blind can tell apart; each has a shape besides.
const COLOURS = ['#56b4e9', '#e69f00', '#00c48c', '#f0e442', '#ff6f3c', '#e07bb5', '#ffffff', '#9db4ff'];
const SHAPES = ['M7 1a6 6 0 1 0 .1 0z', 'M2 2h10v10H2z', 'M7 1l6 11H1z', 'M7 0l7 7-7 7-7-7z', 'M5 1h4v4h4v4H9v4H5V9H1V5h4z'];
const PLOTTED = 180; // seconds
const TRAIL = 60; // places
const LEAST = 5; // pixels of the screen: what is less was a click

const $ = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const colour = (id) => COLOURS[(id - 1) % COLOURS.length];
const shape = (id) => SHAPES[(id - 1) % SHAPES.length];
// A name that stays where it is in an address.
const proper = (name) => (['.', '..'].includes(name) ? '' : name);
const percentile = (values, share) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))];
const wallClock = () => performance.timeOrigin + performance.now();

let toastTimer;
function toast(text) {
  $('toast').textContent = text;
  $('toast').hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $('toast').hidden = true; }, 5000);
}

async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { 'content-type': 'application/json' };
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(`/api${path}`, options).catch(() => null);
  if (!answer) throw new Error('lockon does not answer');
  const said = answer.headers.get('content-type')?.startsWith('application/json') ? await answer.json() : null;
  if (!answer.ok) throw Object.assign(new Error(said?.error ?? `lockon says ${answer.status}`), { status: answer.status });
  return said;
}

const ask = (method, path, body) => call(method, `/videos${path}`, body);

const order = (method, path, body) => ask(method, path, body).catch((error) => { toast(error.message); });

// Looks at a video: calls `status` with reports and `shot` with pictures, and tells that each was shown.
class Look {
  constructor(id, { width, view = 'overlay', rest = 0, shot, status, gone = () => {} }) {
    Object.assign(this, { id, width, view, rest, shot, status, gone, tries: 0, closed: false, ended: false });
    this.open();
  }

  open() {
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
    const socket = new WebSocket(`${scheme}://${location.host}/api/videos/${this.id}/live?width=${this.width}&view=${this.view}`);
    socket.binaryType = 'arraybuffer';
    socket.onmessage = ({ data }) => {
      this.tries = 0;
      if (typeof data === 'string') {
        const status = JSON.parse(data);
        this.ended = status.state === 'ended';
        this.status(status);
      } else {
        this.take(data, socket);
      }
    };
    socket.onclose = ({ reason }) => {
      if (this.closed || this.ended || this.socket !== socket) return;
      this.tries += 1;
      this.gone(this.tries, reason);
      setTimeout(() => { if (!this.closed) this.open(); }, reason ? 3000 : Math.min(5000, 500 * this.tries));
    };
    this.socket = socket;
  }

  async take(data, socket) {
    const length = new DataView(data).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
    const bitmap = await createImageBitmap(new Blob([new Uint8Array(data, 4 + length)], { type: 'image/jpeg' })).catch(() => null);
    // A page in the background shows nothing, and so gets nothing.
    requestAnimationFrame(() => {
      if (bitmap && !this.closed) this.shot(head, bitmap);
      setTimeout(() => this.say({ shown: 1 }, socket), this.rest);
    });
  }

  say(what, socket = this.socket) {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(what));
  }

  close() {
    this.closed = true;
    this.socket.close();
  }
}

// Where a frame lies in a room: scale in x and y, and its top left corner.
function fit(width, height, head) {
  const wide = head.width * head.aspect;
  const scale = Math.min(width / wide, height / head.height);
  return { kx: scale * head.aspect, ky: scale, x: (width - wide * scale) / 2, y: (height - head.height * scale) / 2 };
}

// A canvas as sharp as the screen; its context counts in pixels of the page.
function sharp(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Draws twice, so that a line is seen on any ground.
function outline(context, colour, width, draw) {
  for (const [style, lineWidth] of [['#000b', width + 2.5], [colour, width]]) {
    context.strokeStyle = style;
    context.lineWidth = lineWidth;
    draw();
    context.stroke();
  }
}

const DASHES = { tracked: [], reacquired: [], uncertain: [9, 5], lost: [2, 5] };

function drawRecord(context, place, head, { names = {}, trails = new Map(), selected = null, small = false } = {}) {
  const at = (x, y) => [place.x + x * place.kx, place.y + y * place.ky];
  const label = (text, colour, x, y) => {
    context.font = '600 13px system-ui, sans-serif';
    const width = context.measureText(text).width + 10;
    const top = y - 20 < place.y ? y + 2 : y - 20;
    context.fillStyle = '#000b';
    context.fillRect(x - 1, top, width, 18);
    context.fillStyle = colour;
    context.fillText(text, x + 4, top + 13.5);
  };
  const frame = ({ x, y, w, h }) => { context.beginPath(); context.rect(...at(x, y), w * place.kx, h * place.ky); };
  for (const match of head.record.matches) {
    context.setLineDash([3, 3]);
    outline(context, '#ffffff', 1, () => frame(match));
    context.setLineDash([]);
    if (!small) label(`${match.template} ${match.score.toFixed(2)}`, '#fff', ...at(match.x, match.y));
  }
  for (const track of head.record.tracks) {
    const trail = trails.get(track.id) ?? [];
    context.lineJoin = 'round';
    for (let i = 1; i < trail.length; i += 1) {
      context.globalAlpha = 0.85 * i / trail.length;
      context.strokeStyle = colour(track.id);
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(...at(trail[i - 1].x, trail[i - 1].y));
      context.lineTo(...at(trail[i].x, trail[i].y));
      context.stroke();
    }
    context.globalAlpha = 1;
    context.setLineDash(DASHES[track.state] ?? []);
    outline(context, colour(track.id), track.id === selected ? 4 : 2.2, () => frame(track));
    context.setLineDash([]);
    if (!small) {
      const what = track.state === 'lost' ? 'lost' : track.score.toFixed(2);
      label(`${names[track.id] ?? track.template ?? ''} ${track.id}  ${what}`.trim(), colour(track.id), ...at(track.x, track.y));
    }
  }
}

// ---- One video ----

let view = null; // the video that is looked at

class View {
  constructor(id) {
    Object.assign(this, {
      id, status: null, shown: null, still: null, drag: null, correcting: null, selected: null, mask: false,
      trails: new Map(), plots: new Map(), plotted: -1, eyes: [], waiting: [], keyBox: null, rows: new Map(),
      tool: 'follow',
    });
    $('video').hidden = false;
    this.use('follow');
    $('save').href = `/api/videos/${id}/results.jsonl`;
    this.look();
    ask('GET', `/${id}/plot?seconds=${PLOTTED}`).then(({ tracks }) => {
      for (const [track, points] of Object.entries(tracks)) {
        this.plots.set(Number(track), points.concat(this.plots.get(Number(track)) ?? []));
      }
    }).catch(() => {});
    this.timer = setInterval(() => this.drawPlot(), 500);
  }

  look() {
    this.live?.close();
    const width = Math.min(1280, Math.ceil($('stage').clientWidth * (window.devicePixelRatio || 1)) || 1280);
    this.width = width;
    this.live = new Look(this.id, {
      width,
      view: this.mask ? 'mask' : 'overlay',
      shot: (head, bitmap) => this.take(head, bitmap),
      status: (status) => this.report(status),
      gone: (tries, reason) => {
        $('state').dataset.is = 'gone';
        $('state').textContent = reason ? 'no picture' : 'out of reach';
        $('fps').textContent = '–';
        if (reason) this.hint(reason);
        else if (tries > 1) this.hint('lockon is out of reach. This page goes on when it is back.');
        // It may be back with other videos.
        ask('GET', this.path).catch(({ status }) => { if (status === 404 && view === this) home(); });
      },
    });
  }

  close() {
    this.live.close();
    clearInterval(this.timer);
    $('video').hidden = true;
    for (const list of ['tracks', 'events']) $(list).replaceChildren();
  }

  get path() { return `/${this.id}`; }

  // A picture has come.
  take(head, bitmap) {
    for (const track of head.record.tracks) this.remember(head, track);
    for (const id of this.trails.keys()) {
      if (!head.record.tracks.some((track) => track.id === id)) this.trails.delete(id);
    }
    this.waiting = this.waiting.filter((box) => !head.record.tracks.some((track) => track.id === box.id));
    this.shown?.bitmap.close?.();
    this.shown = { head, bitmap };
    if (!this.still) {
      this.paint();
      const late = wallClock() - head.captured_ms;
      if (late >= 0 && late < 10000 && this.status?.state === 'running') {
        this.eyes.push(late);
        if (this.eyes.length > 150) this.eyes.shift();
      }
    }
    this.list();
  }

  remember(head, track) {
    const trail = this.trails.get(track.id) ?? [];
    if (trail.at(-1)?.frame !== head.record.frame) {
      trail.push({ frame: head.record.frame, x: track.x + track.w / 2, y: track.y + track.h / 2 });
      if (trail.length > TRAIL) trail.shift();
      this.trails.set(track.id, trail);
    }
    const at = (head.record.pts_ns ?? 0) / 1e9;
    const points = this.plots.get(track.id) ?? [];
    if (!points.length || at - points.at(-1)[0] >= 0.2 || track.state !== points.at(-1)[2]) {
      points.push([at, track.score, track.state]);
      this.plots.set(track.id, points);
    }
    this.now = at;
  }

  // The picture that is seen: the newest, or the one that stands still while a box is drawn.
  get seen() { return this.still ?? this.shown; }

  paint() {
    const { seen } = this;
    if (!seen) return;
    const stage = $('stage');
    stage.style.setProperty('--shape', `${seen.head.width * seen.head.aspect} / ${seen.head.height}`);
    this.place = fit(stage.clientWidth, stage.clientHeight, seen.head);
    const canvas = $('picture');
    if (seen !== this.painted && seen.bitmap.width) {
      if (canvas.width !== seen.bitmap.width || canvas.height !== seen.bitmap.height) {
        canvas.width = seen.bitmap.width;
        canvas.height = seen.bitmap.height;
      }
      canvas.getContext('2d').drawImage(seen.bitmap, 0, 0);
      this.painted = seen;
    }
    canvas.style.width = `${seen.head.width * this.place.kx}px`;
    canvas.style.height = `${seen.head.height * this.place.ky}px`;
    this.paintOver();
  }

  paintOver() {
    const { seen, place } = this;
    if (!seen) return;
    const { context } = sharp($('overlay'));
    drawRecord(context, place, seen.head, { names: this.status?.names, trails: this.trails, selected: this.selected });
    const frame = ([x, y, w, h]) => {
      context.beginPath();
      context.rect(place.x + x * place.kx, place.y + y * place.ky, w * place.kx, h * place.ky);
    };
    for (const { box, id } of this.waiting) {
      context.setLineDash([4, 4]);
      outline(context, colour(id), 2, () => frame(box));
      context.setLineDash([]);
    }
    const drawn = this.keyBox ?? (this.drag?.is ? this.dragged() : null);
    if (!drawn) return;
    context.fillStyle = '#ffffff22';
    frame(drawn);
    context.fill();
    outline(context, '#fff', 1.5, () => frame(drawn));
    context.font = '600 12px system-ui, sans-serif';
    context.fillStyle = '#fff';
    context.shadowColor = '#000';
    context.shadowBlur = 3;
    context.fillText(`${drawn[2]} × ${drawn[3]}`, place.x + drawn[0] * place.kx, place.y + (drawn[1] + drawn[3]) * place.ky + 16);
    context.shadowBlur = 0;
  }

  // What lies under the pointer, three times as large.
  paintLoupe(x, y) {
    const loupe = $('loupe');
    const { seen, place } = this;
    loupe.hidden = false;
    // Where the box is not.
    loupe.classList.toggle('left', (x + this.drag.from[0]) / 2 > $('stage').clientWidth / 2);
    $('hint').textContent = '';
    const context = loupe.getContext('2d');
    const half = loupe.width / 2;
    const zoom = 3;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = '#000';
    context.fillRect(0, 0, loupe.width, loupe.height);
    context.setTransform(zoom, 0, 0, zoom, half - x * zoom, half - y * zoom);
    context.imageSmoothingEnabled = false;
    context.drawImage($('picture'), place.x, place.y, seen.head.width * place.kx, seen.head.height * place.ky);
    context.setTransform(1, 0, 0, 1, 0, 0);
    outline(context, '#fff', 1, () => {
      context.beginPath();
      context.moveTo(half - 12, half); context.lineTo(half + 12, half);
      context.moveTo(half, half - 12); context.lineTo(half, half + 12);
    });
  }

  // From the page to the frame.
  inFrame(x, y) {
    const { width, height } = this.seen.head;
    const within = (v, most) => Math.min(most, Math.max(0, Math.round(v)));
    return [within((x - this.place.x) / this.place.kx, width), within((y - this.place.y) / this.place.ky, height)];
  }

  dragged() {
    const [ax, ay] = this.inFrame(...this.drag.from);
    const [bx, by] = this.inFrame(...this.drag.to);
    return [Math.min(ax, bx), Math.min(ay, by), Math.abs(ax - bx), Math.abs(ay - by)];
  }

  // The picture stands still, and the run keeps the frames since.
  hold() {
    if (this.still || !this.shown) return;
    // The bitmap that is seen is painted already, and the next one closes it.
    this.still = this.shown;
    this.painted = this.still;
    this.live.say({ drawing: true });
  }

  release() {
    this.live.say({ drawing: false });
    this.still = null;
    $('loupe').hidden = true;
    this.paint();
    this.hint();
  }

  press(x, y) {
    if (!this.shown || this.status?.state === 'ended') return;
    this.keyBox = null;
    this.hold();
    this.drag = { from: [x, y], to: [x, y], is: false };
  }

  move(x, y) {
    if (!this.drag) return;
    this.drag.to = [x, y];
    this.drag.is ||= Math.hypot(x - this.drag.from[0], y - this.drag.from[1]) >= LEAST;
    if (this.drag.is) {
      this.paintLoupe(x, y);
      this.paintOver();
    }
  }

  lift() {
    const { drag } = this;
    if (!drag) return;
    const box = this.dragged();
    this.drag = null;
    if (!drag.is) {
      this.select(this.under(...drag.from));
      this.release();
    } else {
      this.draw(box);
    }
  }

  // The track whose box lies there, the smallest if there are several.
  under(x, y) {
    const [fx, fy] = [(x - this.place.x) / this.place.kx, (y - this.place.y) / this.place.ky];
    const hit = this.seen.head.record.tracks.filter((t) => fx >= t.x && fx <= t.x + t.w && fy >= t.y && fy <= t.y + t.h);
    return hit.sort((a, b) => a.w * a.h - b.w * b.h)[0]?.id ?? null;
  }

  // A box was drawn: it is followed, or corrects a track.
  async draw(box) {
    const { correcting, still } = this;
    const frame = (still ?? this.shown).head.record.frame;
    this.correcting = null;
    this.keyBox = null;
    if (box[2] < 1 || box[3] < 1) return this.release();
    if (correcting === null && this.tool === 'template') return this.cut(box, frame);
    const [method, path] = correcting === null ? ['POST', '/tracks'] : ['PUT', `/tracks/${correcting}`];
    const answer = await order(method, this.path + path, { box, frame });
    if (answer) {
      this.selected = answer.id ?? correcting;
      if (answer.frame === null && this.status?.state === 'paused') {
        this.waiting.push({ box, id: this.selected });
        toast('It is followed from the next frame on: space goes on, . goes on by one frame.');
      }
    }
    this.release();
    return this.list();
  }

  // What a box is for, from now on.
  use(tool) {
    this.tool = tool;
    for (const one of ['follow', 'template']) $(`tool-${one}`).setAttribute('aria-pressed', one === tool);
    $('template-name').hidden = tool !== 'template';
    this.hint();
  }

  // The first name that no template has.
  get freeName() {
    const taken = new Set(this.status?.search.templates.map(({ name }) => name));
    let number = 1;
    while (taken.has(`template-${number}`)) number += 1;
    return `template-${number}`;
  }

  // What was drawn is searched from now on, as the frame that was seen has it.
  async cut(box, frame) {
    const name = proper($('template-name').value.trim()) || this.freeName;
    const answer = await order('POST', `${this.path}/templates/${encodeURIComponent(name)}`, { box, frame });
    if (answer) {
      $('template-name').value = '';
      toast(answer.frame === null ? `${name} is searched from the next frame on.` : `${name} is searched from frame ${answer.frame} on.`);
      this.use('follow');
    }
    this.release();
  }

  select(id) {
    this.selected = id;
    this.paintOver();
    this.list();
  }

  cancel() {
    if (this.drag || this.keyBox || this.correcting !== null) {
      Object.assign(this, { drag: null, keyBox: null, correcting: null });
      this.release();
    } else if (this.tool === 'template') {
      this.use('follow');
    } else {
      this.select(null);
    }
  }

  hint(text) {
    const { status } = this;
    const usual = () => {
      if (this.correcting !== null) return `Draw where track ${this.correcting} really is. Esc cancels.`;
      if (this.keyBox) return 'Arrows move the box, Shift and arrows resize it, Enter takes it.';
      if (!status || status.state === 'opening') return 'Opening the video …';
      if (status.state === 'ended') return status.error ? `Ended: ${status.error}` : 'The run has ended.';
      if (status.state === 'stalled') return 'Nothing comes from the source. Waiting …';
      if (this.tool === 'template') return 'Drag a box around what to search in every frame. Esc cancels.';
      if (status.waits) return 'Drag a box around what to follow.';
      if (this.shown && !this.shown.head.record.tracks.length && !status.search.templates.length) return 'Drag a box around what to follow.';
      return '';
    };
    $('hint').textContent = text ?? usual();
  }

  // A report has come.
  report(status) {
    const before = this.status;
    this.status = status;
    document.title = `${status.name} – lockon`;
    $('name').textContent = status.name;
    $('state').dataset.is = status.state;
    $('state').textContent = status.state;
    $('pause').hidden = status.is_live;
    $('step').hidden = status.is_live;
    $('pause').textContent = status.state === 'paused' ? 'Go on' : 'Pause';
    $('view').hidden = !status.search.threshold;
    if (!status.search.threshold && this.mask) this.toggleMask(true);
    this.showSearch(status.search);
    $('tools').hidden = status.state === 'ended';
    $('template-name').placeholder = this.freeName;
    for (const id of ['pause', 'step', 'stop', 'clear', 'view', 'correct', 'forget']) $(id).disabled = status.state === 'ended';
    $('save').download = `${status.name.replace(/[^\w.-]+/g, '_')}.jsonl`;
    const spread = (id, value) => {
      const figure = $(id);
      figure.textContent = value ? `${value.p50 < 10 ? value.p50.toFixed(1) : Math.round(value.p50)} ` : '–';
      if (value) figure.append(make('small', `${Math.round(value.p95)} ms`));
    };
    $('fps').textContent = status.fps ? status.fps.toFixed(1) : '–';
    spread('latency', status.latency_ms);
    if (this.eyes.length > 5) {
      const seen = { p50: percentile(this.eyes, 0.5), p95: percentile(this.eyes, 0.95) };
      spread('eyes', seen);
      $('eyes').dataset.p95 = seen.p95.toFixed(1);
    }
    $('dropped').textContent = status.is_live ? status.dropped : 'none';
    $('dropped').classList.toggle('bad', before && status.dropped > before.dropped);
    $('stalls').textContent = status.stalls + status.gaps;
    $('stalls').classList.toggle('bad', status.state === 'stalled');
    const share = status.length_s ? `${Math.min(100, Math.round(100 * (status.position_s ?? 0) / status.length_s))} %` : null;
    $('position-name').textContent = share ? 'done' : 'frame';
    $('position').textContent = share ?? status.frame ?? '–';
    $('device').textContent = [
      status.width && `${status.width} × ${status.height}`, status.device, status.decoder && `decoded by ${status.decoder}`,
      status.viewers > 1 && `${status.viewers} look at this`,
    ].filter(Boolean).join(' · ');
    const key = JSON.stringify(status.events);
    if (key !== this.told) {
      this.told = key;
      $('events').replaceChildren(...[...status.events].reverse().map(({ frame, what }) => {
        const line = make('li');
        line.append(make('span', `#${frame}`), make('span', what));
        return line;
      }));
    }
    if (JSON.stringify(before?.names) !== JSON.stringify(status.names)) this.paintOver();
    this.hint();
    this.list();
  }

  name(id) {
    const track = this.seen?.head.record.tracks.find((t) => t.id === id);
    return this.status?.names[id] ?? (track?.template ? `${track.template} ${id}` : `Track ${id}`);
  }

  // The list of tracks, changed in place: what has the focus keeps it.
  list() {
    const tracks = this.shown?.head.record.tracks ?? [];
    for (const [id, row] of this.rows) {
      if (!tracks.some((track) => track.id === id)) {
        row.item.remove();
        this.rows.delete(id);
      }
    }
    for (const track of tracks) {
      let row = this.rows.get(track.id);
      if (!row) {
        row = { item: make('li'), button: make('button'), name: make('span', '', 'name'), is: make('span', '', 'is'), score: make('span', '', 'score') };
        row.button.type = 'button';
        row.item.dataset.id = track.id;
        const mark = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
        mark.setAttribute('viewBox', '0 0 14 14');
        const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
        path.setAttribute('d', shape(track.id));
        path.setAttribute('fill', colour(track.id));
        path.setAttribute('stroke', '#0008');
        mark.append(path);
        row.button.append(mark, row.name, row.is, row.score);
        row.button.onclick = () => this.select(this.selected === track.id ? null : track.id);
        row.item.append(row.button);
        $('tracks').append(row.item);
        this.rows.set(track.id, row);
      }
      row.name.textContent = this.name(track.id);
      row.is.textContent = track.state;
      row.is.dataset.is = track.state;
      row.score.textContent = track.score.toFixed(2);
      row.button.setAttribute('aria-pressed', track.id === this.selected);
    }
    $('count').textContent = tracks.length ? `(${tracks.length})` : '';
    const is = tracks.some((track) => track.id === this.selected);
    $('selected').hidden = !is;
    if (is) {
      $('selected').style.borderLeftColor = colour(this.selected);
      $('selected-name').textContent = this.name(this.selected);
    }
  }

  drawPlot() {
    const { context, width, height } = sharp($('plot'));
    const style = getComputedStyle(document.documentElement);
    const end = this.now ?? 0;
    const left = 26;
    const x = (at) => left + (width - left - 6) * (1 - (end - at) / PLOTTED);
    const y = (score) => 8 + (height - 26) * (1 - score);
    context.font = '10px system-ui, sans-serif';
    context.fillStyle = style.getPropertyValue('--faint');
    context.strokeStyle = style.getPropertyValue('--line');
    context.lineWidth = 1;
    for (const score of [0, 0.5, 1]) {
      context.fillText(score, 6, y(score) + 3);
      context.beginPath();
      context.moveTo(left, y(score));
      context.lineTo(width - 6, y(score));
      context.stroke();
    }
    for (const ago of [180, 120, 60, 0]) context.fillText(ago ? `-${ago / 60} min` : 'now', Math.min(x(end - ago), width - 26), height - 5);
    for (const [id, points] of this.plots) {
      while (points.length && points[0][0] < end - PLOTTED) points.shift();
      if (!points.length) {
        this.plots.delete(id);
        continue;
      }
      context.strokeStyle = colour(id);
      context.lineWidth = id === this.selected ? 2.6 : 1.4;
      context.beginPath();
      points.forEach(([at, score], i) => {
        const gap = i === 0 || at - points[i - 1][0] > 5 || at < points[i - 1][0];
        context[gap ? 'moveTo' : 'lineTo'](x(at), y(score));
      });
      context.stroke();
    }
  }

  snapshot() {
    if (!this.seen) return;
    const { head } = this.seen;
    const canvas = document.createElement('canvas');
    const picture = $('picture');
    canvas.width = Math.round(head.width * head.aspect * Math.min(1, picture.width / head.width));
    canvas.height = picture.height;
    const context = canvas.getContext('2d');
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    drawRecord(context, fit(canvas.width, canvas.height, head), head, { names: this.status?.names, trails: this.trails });
    canvas.toBlob((blob) => {
      const link = make('a');
      link.href = URL.createObjectURL(blob);
      link.download = `${(this.status?.name ?? 'video').replace(/[^\w.-]+/g, '_')}-${head.record.frame}.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }, 'image/png');
  }

  pause() {
    if (this.status && !this.status.is_live) order('PUT', `${this.path}/pace`, { paused: this.status.state !== 'paused' });
  }

  step() { if (this.status && !this.status.is_live) order('POST', `${this.path}/step`); }

  forget(id = this.selected) { if (id !== null) order('DELETE', `${this.path}/tracks/${id}`); }

  correct() {
    if (this.selected === null) return;
    this.correcting = this.selected;
    this.hint();
    $('stage').focus();
  }

  rename() {
    const id = this.selected;
    if (id === null) return;
    $('naming-id').textContent = id;
    $('naming-text').value = this.status?.names[id] ?? '';
    $('naming').returnValue = '';
    $('naming').onclose = () => {
      if ($('naming').returnValue === 'ok') order('PUT', `${this.path}/tracks/${id}/name`, { name: $('naming-text').value });
    };
    $('naming').showModal();
    $('naming-text').select();
  }

  // What is searched, as it is now; what somebody has in the hand stays as it is.
  showSearch(search) {
    const key = JSON.stringify(search);
    if (key === this.searched) return;
    this.searched = key;
    $('templates').replaceChildren(...search.templates.map(({ name, w, h }) => {
      const line = make('li');
      const off = make('button', '×');
      off.type = 'button';
      off.title = `Search for ${name} no more`;
      off.setAttribute('aria-label', off.title);
      off.onclick = () => order('DELETE', `${this.path}/templates/${encodeURIComponent(name)}`);
      line.append(make('b', name), make('span', `${w} × ${h}`), off);
      return line;
    }));
    $('limits').hidden = !search.templates.length;
    const set = (id, value) => { if (document.activeElement !== $(id)) $(id).value = value; };
    set('min-score', search.min_score);
    set('max-matches', search.max_matches);
    const [method, block, value, inverted] = (search.threshold ?? '').split(':');
    set('method', method);
    if (method) {
      ranges(method);
      set('block', block);
      set('value', value);
      $('inverted').checked = inverted === 'inv';
    }
    $('threshold').hidden = !method;
    this.tellRanges();
  }

  tellRanges() {
    $('min-score-is').textContent = Number($('min-score').value).toFixed(2);
    $('max-matches-is').textContent = $('max-matches').value;
    $('block-is').textContent = $('block').value;
    $('value-is').textContent = $('value').value;
  }

  // A slider was moved: what it says last is asked for, one after the other.
  async change(what) {
    this.tellRanges();
    this.wanted = { ...this.wanted, ...what };
    if (this.changing) return;
    this.changing = true;
    while (this.wanted) {
      const asked = this.wanted;
      this.wanted = null;
      await order('PUT', `${this.path}/search`, asked);
    }
    this.changing = false;
  }

  changeThreshold() {
    const method = $('method').value;
    $('threshold').hidden = !method;
    this.change({ threshold: method && `${method}:${$('block').value}:${$('value').value}${$('inverted').checked ? ':inv' : ''}` });
  }

  // Pictures are searched from now on, under their files' names.
  async add(files) {
    for (const file of files) {
      const name = proper(file.name.replace(/\.[^.]*$/, '').slice(0, 64)) || 'template';
      const answer = await fetch(`/api/videos${this.path}/templates/${encodeURIComponent(name)}`, {
        method: 'PUT', headers: { 'content-type': file.type || 'image/png' }, body: file,
      }).catch(() => null);
      if (!answer?.ok) toast((await answer?.json().catch(() => null))?.error ?? 'lockon does not answer');
    }
  }

  toggleMask(mayGo = false) {
    if (!this.status?.search.threshold && !mayGo) return;
    this.mask = !this.mask;
    $('view').setAttribute('aria-pressed', this.mask);
    this.look();
  }

  // A box by keys: in the middle first.
  boxByKey() {
    if (!this.shown) return;
    this.hold();
    const { width, height } = this.still.head;
    const side = Math.round(Math.min(width, height) / 6);
    this.keyBox = [Math.round((width - side) / 2), Math.round((height - side) / 2), side, side];
    this.paintOver();
    this.hint();
  }

  moveKeyBox(key, resizes) {
    const { width, height } = this.still.head;
    const by = Math.max(1, Math.round(width / 320));
    const [dx, dy] = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by] }[key];
    const box = this.keyBox;
    const within = (v, least, most) => Math.min(most, Math.max(least, v));
    if (resizes) {
      box[2] = within(box[2] + dx, 4, width - box[0]);
      box[3] = within(box[3] + dy, 4, height - box[1]);
    } else {
      box[0] = within(box[0] + dx, 0, width - box[2]);
      box[1] = within(box[1] + dy, 0, height - box[3]);
    }
    this.paintOver();
  }

  key(event) {
    const { key } = event;
    const tracks = this.shown?.head.record.tracks ?? [];
    if (key.startsWith('Arrow') && this.keyBox) this.moveKeyBox(key, event.shiftKey);
    else if (key === 'Enter' && this.keyBox) this.draw([...this.keyBox]);
    else if (key === ' ') this.pause();
    else if (key === '.') this.step();
    else if (key === 'b') this.boxByKey();
    else if (key === 'm') this.use(this.tool === 'template' ? 'follow' : 'template');
    else if (key === 'c') this.correct();
    else if (key === 'n') this.rename();
    else if (key === 'Delete' || key === 'Backspace') this.forget();
    else if (key === 't') this.toggleMask();
    else if (key === 's') this.snapshot();
    else if (key === 'f') (document.fullscreenElement ? document.exitFullscreen() : $('stage').requestFullscreen()).catch(() => {});
    else if (key === 'Escape') this.cancel();
    else if (key >= '1' && key <= '9' && tracks[key - 1]) this.select(tracks[key - 1].id);
    else return;
    event.preventDefault();
  }
}

// What a method's value may be, and where it begins.
function ranges(method) {
  const isShare = method === 'sauvola' || method === 'niblack';
  const [min, max, step] = isShare ? [-1, 1, 0.01] : [-64, 64, 1];
  Object.assign($('value'), { min, max, step });
  return method === 'sauvola' ? 0.2 : method === 'niblack' ? -0.2 : 5;
}

// ---- All videos ----

let wall = null;

class Wall {
  constructor(videos, offers) {
    $('wall').hidden = false;
    $('name').textContent = '';
    $('state').textContent = '';
    document.title = videos.length ? `${videos.length} videos – lockon` : 'lockon';
    this.cards = new Map();
    this.update(videos);
    // Videos begin and end while others go on.
    this.timer = setInterval(() => ask('GET', '').then((now) => this.update(now)).catch(() => {}), 2000);
    this.observer.takeRecords();
    $('offers').hidden = true;
    if (offers !== null) this.offer(offers);
  }

  // What can be opened, now and from now on: cameras come and go, and so do files.
  async offer(now) {
    const offers = now ?? await call('GET', '/offers').catch(() => undefined);
    if (this.closed) return;
    if (offers === null) {
      // Its videos were named when it was started, and there is one.
      if (this.cards.size < 2) route();
      return;
    }
    if (offers) this.showOffers(offers);
    this.offersTimer = setTimeout(() => this.offer(), offers?.cameras ? 5000 : 500);
  }

  showOffers(offers) {
    $('offers').hidden = false;
    $('looking').hidden = offers.cameras !== null;
    $('cameras').hidden = offers.cameras === null;
    this.list($('cameras'), offers.cameras ?? []);
    $('files-offered').hidden = offers.folder === null;
    $('folder').textContent = offers.folder;
    this.list($('files'), offers.files);
    $('more-files').hidden = !offers.more;
    $('more-files').textContent = `And ${offers.more} more, which are not shown.`;
  }

  // Changed in place: what has the focus keeps it, and nothing jumps.
  list(list, all) {
    const keyOf = ({ camera, file }) => camera ?? file;
    const lines = new Map([...list.children].map((line) => [line.dataset.key, line]));
    const keys = new Set(all.map(keyOf));
    for (const [key, line] of lines) if (!keys.has(key)) line.remove();
    all.forEach((one, at) => {
      const { name, camera, file, bytes } = one;
      let line = lines.get(keyOf(one));
      if (!line) {
        line = make('li');
        line.dataset.key = keyOf(one);
        const button = make('button');
        button.type = 'button';
        button.append(make('span', name), make('small'));
        button.onclick = () => choose(button, camera ? { camera } : { file });
        line.append(button);
      }
      const about = line.querySelector('small');
      const text = camera ?? size(bytes);
      if (about.textContent !== text) about.textContent = text;
      if (list.children[at] !== line) list.insertBefore(line, list.children[at] ?? null);
    });
  }

  // Only what can be seen is looked at.
  observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const card = this.cards.get(Number(target.dataset.id));
      if (!card) continue;
      if (isIntersecting && !card.look) {
        card.look = new Look(card.id, { width: 320, rest: 300, status: (status) => this.tell(card, status), shot: (head, bitmap) => this.show(card, head, bitmap) });
      } else if (!isIntersecting && card.look) {
        card.look.close();
        card.look = null;
      }
    }
  });

  update(videos) {
    for (const [id, card] of this.cards) {
      if (!videos.some((video) => video.id === id)) {
        card.look?.close();
        card.link.remove();
        this.cards.delete(id);
      }
    }
    for (const status of videos) {
      let card = this.cards.get(status.id);
      if (!card) {
        card = { id: status.id, link: make('a'), canvas: make('canvas'), is: make('span', '', 'state'), name: make('b'), about: make('span'), look: null };
        card.link.href = `#${status.id}`;
        card.link.dataset.id = status.id;
        const frame = make('div', undefined, 'frame');
        frame.append(card.canvas);
        const about = make('div', undefined, 'about');
        about.append(card.is, card.name, card.about);
        card.link.append(frame, about);
        $('videos').append(card.link);
        this.cards.set(status.id, card);
        this.observer.observe(card.link);
      }
      if (!card.look || status.state === 'ended') this.tell(card, status);
    }
  }

  tell(card, status) {
    card.is.dataset.is = status.state;
    card.is.textContent = status.state;
    card.name.textContent = status.name;
    const rest = { ended: `${status.frames} frames`, paused: status.waits ? 'waits for a box' : `frame ${status.frame}`, opening: '' };
    card.about.textContent = status.error ?? rest[status.state] ?? `${status.fps.toFixed(1)} fps`;
  }

  show(card, head, bitmap) {
    const { context, width, height } = sharp(card.canvas);
    const place = fit(width, height, head);
    context.drawImage(bitmap, place.x, place.y, head.width * place.kx, head.height * place.ky);
    drawRecord(context, place, head, { small: true });
    bitmap.close();
  }

  close() {
    this.closed = true;
    clearInterval(this.timer);
    clearTimeout(this.offersTimer);
    this.observer.disconnect();
    for (const card of this.cards.values()) card.look?.close();
    $('videos').replaceChildren();
    $('wall').hidden = true;
  }
}

const size = (bytes) => {
  const [unit, of] = [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]].find(([, of]) => bytes >= of) ?? ['bytes', 1];
  return `${(bytes / of).toFixed(of > 1 && bytes < 10 * of ? 1 : 0)} ${unit}`;
};

// Opens a camera or a file, and goes there.
async function choose(button, wish) {
  button.disabled = true;
  const opened = await order('POST', '', wish);
  button.disabled = false;
  if (opened?.id === null) toast('It is still being opened.');
  else if (opened) location.hash = opened.id;
}

// ---- Where we are ----

function home() {
  if (location.hash === '') route();
  else location.hash = '';
}

async function route() {
  const here = location.hash;
  // A folder may take long to be read: videos that go on are shown meanwhile.
  const offered = Promise.race([call('GET', '/offers').catch(() => {}), new Promise((done) => { setTimeout(done, 300); })]);
  const found = await Promise.all([ask('GET', ''), offered]).catch((error) => { toast(error.message); return null; });
  const [videos, offers] = found ?? [[], null];
  // Somebody has gone elsewhere meanwhile, which is found by itself.
  if (here !== location.hash) return;
  if (!videos.length && offers === null) {
    setTimeout(route, 1000);
    return;
  }
  $('toast').hidden = true;
  view?.close();
  wall?.close();
  view = wall = null;
  const chosen = location.hash === '' ? null : Number(location.hash.slice(1));
  const isAlone = videos.length === 1 && offers === null;
  const isOne = isAlone || videos.some((video) => video.id === chosen);
  for (const id of ['pause', 'step', 'view', 'more']) $(id).hidden = !isOne;
  if (isOne) view = new View(isAlone ? videos[0].id : chosen);
  else wall = new Wall(videos, offers);
  if (isAlone && here === '') waitForOthers(view);
}

// Whoever comes first may see one of several videos that are just being opened: all are shown when there are more, but
// nobody is torn from what he does.
function waitForOthers(alone) {
  setTimeout(async () => {
    const videos = await ask('GET', '').catch(() => []);
    if (view !== alone) return;
    const isBusy = alone.still || alone.drag || alone.correcting !== null || alone.tool !== 'follow' || document.querySelector('dialog[open]');
    if (videos.length > 1 && !isBusy) route();
    else waitForOthers(alone);
  }, 2000);
}

const overlay = $('overlay');
const place = (event) => {
  const box = overlay.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
overlay.onpointerdown = (event) => {
  if (event.button !== 0 || !event.isPrimary) return;
  overlay.setPointerCapture(event.pointerId);
  view?.press(...place(event));
};
overlay.onpointermove = (event) => view?.move(...place(event));
overlay.onpointerup = () => view?.lift();
overlay.onpointercancel = () => view?.cancel();

$('tool-follow').onclick = () => view?.use('follow');
$('tool-template').onclick = () => view?.use('template');
$('template-name').onkeydown = ({ key }) => { if (['Enter', 'Escape'].includes(key)) $('stage').focus(); };
$('pause').onclick = () => view?.pause();
$('step').onclick = () => view?.step();
$('view').onclick = () => view?.toggleMask();
$('snapshot').onclick = () => view?.snapshot();
$('correct').onclick = () => view?.correct();
$('rename').onclick = () => view?.rename();
$('forget').onclick = () => view?.forget();
$('clear').onclick = () => view && order('DELETE', `${view.path}/tracks`);
$('keys').onclick = () => $('help').showModal();
$('stop').onclick = () => { if (view && confirm('End the run? Its outputs are completed.')) order('POST', `${view.path}/stop`); };
$('more').addEventListener('click', (event) => { if (event.target.closest('menu')) $('more').open = false; });
document.addEventListener('pointerdown', (event) => { if (!event.target.closest('#more')) $('more').open = false; });
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.target.closest('input, select')) return;
  // A button that has the focus is pressed by space and Enter.
  if (event.target.closest('button, a, summary') && [' ', 'Enter'].includes(event.key)) return;
  if (event.key === '?') $('help').showModal();
  else view?.key(event);
});

$('min-score').oninput = () => view?.change({ min_score: Number($('min-score').value) });
$('max-matches').oninput = () => view?.change({ max_matches: Number($('max-matches').value) });
$('method').onchange = () => {
  const value = ranges($('method').value);
  Object.assign($('block'), { value: 31 });
  Object.assign($('value'), { value });
  view?.changeThreshold();
};
for (const id of ['block', 'value', 'inverted']) $(id).oninput = () => view?.changeThreshold();
$('file').onchange = async () => {
  await view?.add([...$('file').files]);
  $('file').value = '';
};
const stage = $('stage');
for (const kind of ['dragenter', 'dragover']) {
  stage.addEventListener(kind, (event) => {
    event.preventDefault();
    stage.classList.add('takes');
  });
}
for (const kind of ['dragleave', 'drop']) stage.addEventListener(kind, () => stage.classList.remove('takes'));
stage.addEventListener('drop', (event) => {
  event.preventDefault();
  view?.add([...event.dataTransfer.files]);
});

let resized;
new ResizeObserver(() => {
  view?.paint();
  clearTimeout(resized);
  resized = setTimeout(() => {
    const wanted = $('stage').clientWidth * (window.devicePixelRatio || 1);
    if (view && !view.still && view.width < 1280 && wanted > 1.3 * view.width) view.look();
  }, 500);
}).observe($('stage'));
window.addEventListener('hashchange', route);
route();
