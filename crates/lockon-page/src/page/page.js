// The page: pictures and records come over a WebSocket, everything else over the API in openapi.json.
// Names of videos, tracks, templates, zones and lines become text, never HTML.

// Okabe and Ito's colours, which colour-blind people can distinguish; each has a shape too.
const COLOURS = ['#56b4e9', '#e69f00', '#00c48c', '#f0e442', '#ff6f3c', '#e07bb5', '#ffffff', '#9db4ff'];
const SHAPES = ['M7 1a6 6 0 1 0 .1 0z', 'M2 2h10v10H2z', 'M7 1l6 11H1z', 'M7 0l7 7-7 7-7-7z', 'M5 1h4v4h4v4H9v4H5V9H1V5h4z'];
const PLOTTED = 180; // seconds
const ZONES = ['#ff9ff3', '#9be564', '#8ab4ff', '#ffd166'];
const TRAIL = 60; // places
const LEAST = 5; // pixels of the screen: a shorter drag is a click
const NEAR = 14; // pixels of the screen: a click so near to the first corner closes a zone

const $ = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const colour = (id) => COLOURS[(id - 1) % COLOURS.length];
const shape = (id) => SHAPES[(id - 1) % SHAPES.length];
const isOver = (status) => status?.state === 'ended';
// A name that is safe in an address.
const proper = (name) => (['.', '..'].includes(name) ? '' : name);
const percentile = (values, share) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))];
const wallClock = () => performance.timeOrigin + performance.now();
const two = (number) => String(number).padStart(2, '0');
// 1:02.3, or 1:02:03 from an hour on.
const clock = (seconds) => {
  const tenths = Math.max(0, Math.round(seconds * 10));
  const [h, m, s] = [Math.floor(tenths / 36000), Math.floor(tenths / 600) % 60, Math.floor(tenths / 10) % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}.${tenths % 10}`;
};

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

// Connects to a video: calls `status` with reports and `shot` with pictures, and confirms each picture.
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
        this.ended = isOver(status);
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
    // A tab in the background shows no pictures, so it gets none.
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

// How a frame fits into a rectangle: scale in x and y, and its top left corner.
function fit(width, height, head) {
  const wide = head.width * head.aspect;
  const scale = Math.min(width / wide, height / head.height);
  return { kx: scale * head.aspect, ky: scale, x: (width - wide * scale) / 2, y: (height - head.height * scale) / 2 };
}

// A canvas in the screen's resolution; its context uses pixels of the page.
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

// Draws twice, so that a line is visible on any background.
function outline(context, colour, width, draw) {
  for (const [style, lineWidth] of [['#000b', width + 2.5], [colour, width]]) {
    context.strokeStyle = style;
    context.lineWidth = lineWidth;
    draw();
    context.stroke();
  }
}

function polygon(context, corners) {
  context.beginPath();
  corners.forEach(([x, y], index) => context[index ? 'lineTo' : 'moveTo'](x, y));
  context.closePath();
}

const DASHES = { tracked: [], reacquired: [], uncertain: [9, 5], lost: [2, 5] };

const OBJECT = '#ff5cc4';

function drawRecord(context, place, head, { names = {}, trails = new Map(), zones = [], lines = [], selected = null, small = false } = {}) {
  const at = (x, y) => [place.x + x * place.kx, place.y + y * place.ky];
  const label = (text, colour, x, y) => {
    context.font = '600 13px system-ui, sans-serif';
    const width = context.measureText(text).width + 10;
    // Labels stay in the picture, also those of boxes that leave it.
    const top = y - 20 < place.y ? Math.max(place.y + 1, y + 2) : y - 20;
    x = Math.max(place.x + 1, Math.min(x, place.x + head.width * place.kx - width));
    context.fillStyle = '#000b';
    context.fillRect(x - 1, top, width, 18);
    context.fillStyle = colour;
    context.fillText(text, x + 4, top + 13.5);
  };
  const frame = ({ x, y, w, h }) => { context.beginPath(); context.rect(...at(x, y), w * place.kx, h * place.ky); };
  context.save();
  context.beginPath();
  context.rect(...at(0, 0), head.width * place.kx, head.height * place.ky);
  context.clip();
  zones.forEach(({ name, corners }, index) => {
    const line = ZONES[index % ZONES.length];
    context.setLineDash([7, 4]);
    outline(context, line, small ? 1 : 1.8, () => polygon(context, corners.map(([x, y]) => at(x, y))));
    context.setLineDash([]);
    context.globalAlpha = 0.08;
    context.fillStyle = line;
    context.fill();
    context.globalAlpha = 1;
    // The name stays inside of the picture, even if the zone does not.
    const within = (v, most) => Math.min(Math.max(v, 0), most);
    const [x, y] = corners.map(([x, y]) => [within(x, head.width), within(y, head.height)]).sort((a, b) => a[1] - b[1] || a[0] - b[0])[0];
    if (!small) label(name, line, ...at(x, y + 20 / place.ky));
  });
  // The counts are those of the shown frame.
  const counts = new Map((head.record.lines ?? []).map((count) => [count.line, count]));
  lines.forEach(({ name, ends, ...now }, index) => {
    const line = ZONES[(index + zones.length) % ZONES.length];
    const [[ax, ay], [bx, by]] = ends.map(([x, y]) => at(x, y));
    const [mx, my, length] = [(ax + bx) / 2, (ay + by) / 2, Math.hypot(bx - ax, by - ay)];
    // An arrow from the middle to the right side, to which "in" leads.
    const [ux, uy] = [(bx - ax) / length, (by - ay) / length];
    const to = (along, across) => [mx + ux * along - uy * across, my + uy * along + ux * across];
    outline(context, line, small ? 1 : 2, () => {
      context.beginPath();
      context.moveTo(ax, ay);
      context.lineTo(bx, by);
      context.moveTo(mx, my);
      context.lineTo(...to(0, 14));
      context.moveTo(...to(-5, 8));
      context.lineTo(...to(0, 14));
      context.lineTo(...to(5, 8));
    });
    const count = counts.get(name) ?? now;
    if (!small) label(`${name} in ${count.in} out ${count.out}`, line, Math.min(ax, bx) + 4, Math.min(ay, by));
  });
  context.restore();
  const objects = head.record.objects ?? [];
  // The box of a track is its object's.
  const followed = new Set(head.record.tracks.map(({ object }) => object));
  // More boxes would hide the picture, and take longer than the next one lets them.
  objects.slice(0, 1000).forEach((object, index) => {
    if (followed.has(index + 1)) return;
    outline(context, OBJECT, 1, () => frame(object));
    // More numbers would hide the picture.
    if (!small && objects.length <= 99) label(String(index + 1), OBJECT, ...at(object.x, object.y));
  });
  for (const match of head.record.matches) {
    context.setLineDash([3, 3]);
    outline(context, '#ffffff', 1, () => frame(match));
    context.setLineDash([]);
    // A track has its label there, which names the template too.
    const isTrack = (track) => track.template === match.template && Math.hypot(track.x - match.x, track.y - match.y) * place.kx < 40;
    if (!small && !head.record.tracks.some(isTrack)) label(`${match.template} ${match.score.toFixed(2)}`, '#fff', ...at(match.x, match.y));
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
      label(`${names[track.id] ?? track.name ?? track.template ?? ''} ${track.id}  ${what}`.trim(), colour(track.id), ...at(track.x, track.y));
    }
  }
}

// ---- One video ----

let view = null; // the open video

class View {
  constructor(id) {
    Object.assign(this, {
      id, status: null, shown: null, still: null, drag: null, correcting: null, selected: null, mask: false,
      trails: new Map(), plots: new Map(), plotted: -1, eyes: [], waiting: [], keyBox: null, rows: new Map(),
      tool: 'follow', corners: [], thumbnails: new Map(), happened: 0, about: null,
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
    this.aboutTimer = setInterval(() => this.askAbout(), 1000);
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
        $('state').textContent = reason ? 'no picture' : 'disconnected';
        $('fps').textContent = '–';
        if (reason) this.hint(reason);
        else if (tries > 1) this.hint('lockon does not answer. Trying again …');
        // After a restart it may have other videos.
        ask('GET', this.path).catch(({ status }) => { if (status === 404 && view === this) home(); });
      },
    });
  }

  close() {
    this.live.close();
    clearInterval(this.timer);
    clearInterval(this.aboutTimer);
    $('video').hidden = true;
    for (const list of ['tracks', 'events', 'happenings', 'zones', 'lines']) $(list).replaceChildren();
  }

  get path() { return `/${this.id}`; }

  // A picture has arrived.
  take(head, bitmap) {
    if (this.shown && head.record.frame < this.shown.head.record.frame) {
      // The video was set back.
      this.trails.clear();
      this.plots.clear();
    }
    for (const track of head.record.tracks) this.remember(head, track);
    for (const id of this.trails.keys()) {
      if (!head.record.tracks.some((track) => track.id === id)) this.trails.delete(id);
    }
    this.waiting = this.waiting.filter((box) => !head.record.tracks.some((track) => track.id === box.id));
    this.shown?.bitmap.close?.();
    this.shown = { head, bitmap };
    $('objects-are').textContent = head.record.objects?.length ?? '';
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

  // The visible picture: the newest, or a still one while a box is drawn.
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
    drawRecord(context, place, seen.head, { names: this.status?.names, trails: this.trails, zones: this.status?.zones, lines: this.status?.lines, selected: this.selected });
    const frame = ([x, y, w, h]) => {
      context.beginPath();
      context.rect(place.x + x * place.kx, place.y + y * place.ky, w * place.kx, h * place.ky);
    };
    for (const { box, id } of this.waiting) {
      context.setLineDash([4, 4]);
      outline(context, colour(id), 2, () => frame(box));
      context.setLineDash([]);
    }
    this.paintCorners(context);
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

  // The corners of the zone that is being drawn.
  paintCorners(context) {
    if (!this.corners.length) return;
    const at = ([x, y]) => [this.place.x + x * this.place.kx, this.place.y + y * this.place.ky];
    outline(context, '#fff', 1.5, () => {
      context.beginPath();
      this.corners.forEach((corner, index) => context[index ? 'lineTo' : 'moveTo'](...at(corner)));
      if (this.hover) context.lineTo(...this.hover);
    });
    for (const [index, corner] of this.corners.entries()) {
      outline(context, '#fff', 1.5, () => { context.beginPath(); context.arc(...at(corner), index ? 3 : 7, 0, 7); });
    }
  }

  // The picture under the pointer, three times as large.
  paintLoupe(x, y) {
    const loupe = $('loupe');
    const { seen, place } = this;
    loupe.hidden = false;
    // On the side where the box is not.
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

  // From page to frame coordinates.
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

  // Freezes the picture; the run keeps the frames since.
  hold() {
    if (this.still || !this.shown) return;
    // The visible bitmap is painted already; the next one closes it.
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
    if (!this.shown || isOver(this.status)) return;
    this.keyBox = null;
    this.hold();
    this.drag = { from: [x, y], to: [x, y], is: false };
  }

  move(x, y) {
    if (this.corners.length) {
      this.hover = [x, y];
      this.paintOver();
    }
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
    if (!drag.is && this.tool === 'zone') {
      this.corner(...drag.from);
    } else if (!drag.is) {
      this.select(this.under(...drag.from));
      this.release();
    } else if (this.tool === 'zone' && this.correcting === null) {
      const [x, y, w, h] = box;
      this.corners = [];
      this.setZone([[x, y], [x + w, y], [x + w, y + h], [x, y + h]]);
    } else {
      this.draw(box);
    }
  }

  // A click with the zone tool: one more corner, or the end of the zone.
  corner(x, y) {
    const [fx, fy] = this.corners[0] ?? [];
    const isFirst = this.corners.length > 2
      && Math.hypot(this.place.x + fx * this.place.kx - x, this.place.y + fy * this.place.ky - y) <= NEAR;
    if (isFirst) {
      this.closeZone();
      return;
    }
    const [lx, ly] = this.corners[1] ?? [];
    const isLast = this.corners.length === 2
      && Math.hypot(this.place.x + lx * this.place.kx - x, this.place.y + ly * this.place.ky - y) <= NEAR;
    if (isLast) {
      this.closeZone();
      return;
    }
    this.corners.push(this.inFrame(x, y));
    this.paintOver();
    this.hint();
  }

  closeZone() {
    const { corners } = this;
    this.corners = [];
    if (corners.length > 2) this.setZone(corners);
    else if (corners.length === 2) this.setLine(corners);
    else this.release();
  }

  // Watches a zone from the next frame on.
  async setZone(corners) {
    this.hover = null;
    const name = proper($('drawn-name').value.trim()) || this.freeName;
    const answer = await order('PUT', `${this.path}/zones/${encodeURIComponent(name)}`, { corners });
    if (answer) {
      $('drawn-name').value = '';
      if (answer.frame === null) toast(`Zone ${name} is watched from the next frame on.`);
      this.use('follow');
    }
    this.release();
  }

  // Counts across a line from the next frame on.
  async setLine(ends) {
    this.hover = null;
    const name = proper($('drawn-name').value.trim()) || this.freeNameOf('line', this.status?.lines);
    const answer = await order('PUT', `${this.path}/lines/${encodeURIComponent(name)}`, { ends });
    if (answer) {
      $('drawn-name').value = '';
      if (answer.frame === null) toast(`Tracks that cross line ${name} are counted from the next frame on.`);
      this.use('follow');
    }
    this.release();
  }

  // The track whose box is there, the smallest if there are several.
  under(x, y) {
    const [fx, fy] = [(x - this.place.x) / this.place.kx, (y - this.place.y) / this.place.ky];
    const hit = this.seen.head.record.tracks.filter((t) => fx >= t.x && fx <= t.x + t.w && fy >= t.y && fy <= t.y + t.h);
    return hit.sort((a, b) => a.w * a.h - b.w * b.h)[0]?.id ?? null;
  }

  // A box was drawn: follow it, or correct a track.
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
        toast('It is followed from the next frame on. Space resumes, . steps by one frame.');
      }
    }
    this.release();
    return this.list();
  }

  // Chooses what a drawn box becomes.
  use(tool) {
    // The picture is held for a zone that is half drawn.
    if (this.corners.length) this.cancel();
    this.tool = tool;
    for (const one of ['follow', 'template', 'zone']) $(`tool-${one}`).setAttribute('aria-pressed', one === tool);
    $('drawn-name').hidden = tool === 'follow';
    $('drawn-name').placeholder = this.freeName;
    this.hint();
  }

  // The first free name for a template or a zone.
  get freeName() {
    const isZone = this.tool === 'zone';
    return this.freeNameOf(isZone ? 'zone' : 'template', isZone ? this.status?.zones : this.status?.search.templates);
  }

  freeNameOf(kind, all) {
    const taken = new Set(all?.map(({ name }) => name));
    let number = 1;
    while (taken.has(`${kind}-${number}`)) number += 1;
    return `${kind}-${number}`;
  }

  // Searches for the content of the box, cut from the frame that was visible.
  async cut(box, frame) {
    const name = proper($('drawn-name').value.trim()) || this.freeName;
    const answer = await order('POST', `${this.path}/templates/${encodeURIComponent(name)}`, { box, frame });
    if (answer) {
      $('drawn-name').value = '';
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
    if (this.drag || this.keyBox || this.correcting !== null || this.corners.length) {
      Object.assign(this, { drag: null, keyBox: null, correcting: null, corners: [], hover: null });
      this.release();
    } else if (this.tool !== 'follow') {
      this.use('follow');
    } else {
      this.select(null);
    }
  }

  hint(text) {
    const { status } = this;
    const usual = () => {
      if (this.correcting !== null) return `Draw the right box of track ${this.correcting}. Esc cancels.`;
      if (this.keyBox) return 'Arrows move the box, Shift and arrows resize it, Enter finishes.';
      if (!status || status.state === 'opening') return 'Opening the video …';
      if (isOver(status)) return '';
      if (status.state === 'stalled') return 'No frames from the source. Waiting …';
      if (this.corners.length > 2) return 'Click the next corner, or the first one to finish (Enter).';
      if (this.corners.length === 2) return 'Click the next corner of the zone, or the last one again for a line (Enter). Esc cancels.';
      if (this.corners.length) return 'Click the next corner of the zone, or the other end of a line. Esc cancels.';
      if (this.tool === 'zone') return 'Drag a rectangle, click the corners of a zone, or the ends of a line. Esc cancels.';
      if (this.tool === 'template') return 'Drag a box around what to search in every frame. Esc cancels.';
      if (status.waits) return 'Drag a box around what to follow.';
      if (this.shown && !this.shown.head.record.tracks.length && !status.search.templates.length) return 'Drag a box around what to follow.';
      return '';
    };
    $('hint').textContent = text ?? usual();
  }

  // A report has arrived.
  report(status) {
    const [before, over] = [this.status, isOver(status)];
    this.status = status;
    $('video').dataset.is = status.state;
    document.title = `${status.title} – lockon`;
    $('name').textContent = status.title;
    $('name').title = status.title;
    $('state').dataset.is = status.state;
    $('state').textContent = status.state;
    this.showTransport(status);
    this.showEnd(status);
    this.showZones(status.zones, over);
    this.showLines(status.lines, over);
    this.showHappenings(status.happened);
    $('view').hidden = !status.search.threshold;
    if (!status.search.threshold && this.mask) this.toggleMask(true);
    this.showSearch(status.search, over);
    $('tools').hidden = over;
    $('drawn-name').placeholder = this.freeName;
    for (const id of ['pause', 'step', 'speed', 'stop', 'clear', 'view', 'correct', 'forget']) $(id).disabled = over;
    // Also for the keyboard.
    for (const id of ['limits', 'thresholding']) $(id).inert = over;
    $('file').disabled = over;
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
    $('position').textContent = status.frame ?? '–';
    $('device').textContent = [
      status.width && `${status.width} × ${status.height}`, status.device, status.decoder && `decoded by ${status.decoder}`,
      status.viewers > 1 && `${status.viewers} browsers`,
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
    const drawn = (of) => JSON.stringify([of?.names, of?.zones.map(({ name, corners }) => [name, corners]), of?.lines]);
    if (drawn(before) !== drawn(status)) this.paintOver();
    this.hint();
    this.list();
  }

  name(id) {
    return this.called(id, this.seen?.head.record.tracks.find((t) => t.id === id));
  }

  // A track's name on this page, else in the results, else its template with its number.
  called(id, { name, template } = {}) {
    return this.status?.names[id] ?? name ?? (template ? `${template} ${id}` : `Track ${id}`);
  }

  showTransport(status) {
    $('transport').hidden = status.is_live;
    $('pause').textContent = status.state === 'paused' ? 'Resume' : 'Pause';
    const { length_s: length, start_s: start } = status;
    let at = status.position_s === null ? 0 : Math.max(0, status.position_s - start);
    // The last frame lasts until the end.
    if (isOver(status) && !status.error && length - at < 0.5) at = length;
    $('time').textContent = length ? `${clock(at)} / ${clock(length)}` : clock(at);
    $('seek').hidden = !length;
    $('seek').disabled = !status.can_jump;
    if (length && !this.seeking) {
      $('seek').max = length;
      $('seek').value = at;
    }
    $('seek').title = status.can_jump ? 'Jump to another place of the video' : 'Position in the video';
    const note = status.can_jump || isOver(status) || !length ? '' : 'Position only: outputs contain every frame once, in order.';
    $('seek-note').textContent = note;
    const speed = status.speed === null ? 'max' : `${status.speed}x`;
    if (![...$('speed').options].some((option) => option.value === speed)) $('speed').append(make('option', speed));
    if (document.activeElement !== $('speed')) $('speed').value = speed;
  }

  jump(seconds) {
    this.seeking = false;
    order('PUT', `${this.path}/position`, { seconds: seconds + (this.status?.start_s ?? 0) });
  }

  setSpeed(text) {
    order('PUT', `${this.path}/pace`, { speed: text === 'max' ? 'max' : Number.parseFloat(text) });
  }

  // The page stays after the end, and lockon can be closed from it.
  showEnd(status) {
    $('ended').hidden = !isOver(status);
    if (!isOver(status)) return;
    $('ended-text').textContent = status.error ? `Ended with an error: ${status.error}` : `The video has ended: ${status.frames} frames.`;
    $('ended').querySelector('.close').hidden = !this.about?.is_done;
  }

  async askAbout() {
    if (!isOver(this.status) || this.about?.is_done) return;
    this.about = await call('GET', '/page').catch(() => null);
    if (view === this && this.status) this.showEnd(this.status);
  }

  // Zones with their counts. Copy gives the option that makes the same zone.
  showZones(zones, isEnded) {
    const key = JSON.stringify([zones, isEnded]);
    if (key === this.zonesShown) return;
    this.zonesShown = key;
    $('zones').replaceChildren(...zones.map(({ name, inside, text }, index) => this.placeRow(
      'zone', name, text, inside === 1 ? '1 track' : `${inside} tracks`, index, isEnded,
    )));
  }

  // Lines with their counts, in the same way.
  showLines(lines, isEnded) {
    const key = JSON.stringify([lines, isEnded, this.status.zones.length]);
    if (key === this.linesShown) return;
    this.linesShown = key;
    $('lines').replaceChildren(...lines.map(({ name, in: inwards, out, text }, index) => this.placeRow(
      'line', name, text, `in ${inwards}, out ${out}`, index + this.status.zones.length, isEnded,
    )));
  }

  placeRow(kind, name, text, counts, index, isEnded) {
    const row = make('li');
    const mark = make('i');
    mark.style.background = ZONES[index % ZONES.length];
    const copy = make('button', 'Copy');
    copy.title = `Copy this ${kind} as an option of lockon run`;
    copy.onclick = () => copyText(`--${kind} '${text.replaceAll("'", "'\\''")}'`);
    const off = make('button', '×');
    off.disabled = isEnded;
    off.title = `Remove ${kind} ${name}`;
    off.setAttribute('aria-label', off.title);
    off.onclick = () => order('DELETE', `${this.path}/${kind}s/${encodeURIComponent(name)}`);
    for (const button of [copy, off]) button.type = 'button';
    row.append(mark, make('b', name), make('span', counts), copy, off);
    return row;
  }

  // Events of tracks, newest first. Thumbnails are cut from the picture here, so the run does nothing for them.
  showHappenings(all) {
    const last = all.at(-1)?.seq ?? 0;
    const key = JSON.stringify([last, this.status.names]);
    if (key === this.happeningsShown) return;
    this.happeningsShown = key;
    for (const event of all) {
      if (event.seq > this.happened) this.thumbnail(event);
    }
    this.happened = last;
    const words = { entered: 'entered', left: 'left' };
    $('happenings').replaceChildren(...[...all].reverse().map((event) => {
      const line = make('li');
      line.dataset.event = event.event;
      line.append(this.thumbnails.get(event.seq) ?? make('i'));
      line.append(make('span', event.time_s === null ? `#${event.frame}` : clock(event.time_s), 'when'));
      const what = make('span', `${this.called(event.track, event)} `, 'what');
      what.append(make('b', event.event));
      if (words[event.event]) what.append(` ${event.zone}`);
      if (event.line) what.append(` ${event.line} (${event.direction})`);
      line.append(what);
      return line;
    }));
    for (const seq of this.thumbnails.keys()) if (seq < (all[0]?.seq ?? 0)) this.thumbnails.delete(seq);
  }

  thumbnail({ seq, event, time_s: time, box: [x, y, w, h] }) {
    const { head, bitmap } = this.shown ?? {};
    if (!bitmap?.width || event === 'gone' || time === null || Math.abs((head.record.pts_ns ?? 0) / 1e9 - time) > 0.5) return;
    const scale = bitmap.width / head.width;
    const side = Math.max(w, h * 4 / 3) * 1.5;
    const made = make('canvas');
    [made.width, made.height] = [80, 60];
    const [left, top] = [(x + w / 2 - side / 2) * scale, (y + h / 2 - side * 3 / 8) * scale];
    made.getContext('2d').drawImage(bitmap, left, top, side * scale, side * scale * 3 / 4, 0, 0, 80, 60);
    this.thumbnails.set(seq, made);
  }

  // The list of tracks, changed in place so that the focus stays.
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

  // The current search. An element with the focus keeps its value.
  showSearch(search, isEnded) {
    const key = JSON.stringify([search, isEnded]);
    if (key === this.searched) return;
    this.searched = key;
    $('templates').replaceChildren(...search.templates.map(({ name, w, h }) => {
      const line = make('li');
      const off = make('button', '×');
      off.type = 'button';
      off.disabled = isEnded;
      off.title = `Remove template ${name}`;
      off.setAttribute('aria-label', off.title);
      off.onclick = () => order('DELETE', `${this.path}/templates/${encodeURIComponent(name)}`);
      line.append(make('b', name), make('span', `${w} × ${h}`), off);
      return line;
    }));
    $('limits').hidden = !search.templates.length;
    const set = (id, value) => { if (document.activeElement !== $(id)) $(id).value = value; };
    set('min-score', search.min_score);
    set('max-matches', search.max_matches);
    const [method, ...parts] = (search.threshold ?? '').split(':');
    set('method', method);
    if (method) {
      ranges(method);
      $('inverted').checked = parts.at(-1) === 'inv';
      if ($('inverted').checked) parts.pop();
      const [value, second] = (parts.pop() ?? '').split('..');
      // What sliders cannot show stays until they are moved: a block that is large or no square, the second value.
      this.typed = { block: parts[0], second };
      if (METHODS[method]?.over === 'frames') $('frames').max = Math.max(1000, Number(parts[0]));
      set(METHODS[method]?.over ?? 'block', parts[0]?.split('x')[0]);
      set('value', value);
    }
    $('threshold').hidden = !method;
    this.objects = search.objects;
    if (search.objects?.reports === false) this.cleaning = search.objects;
    const { reports = true, colour = 'white', connect = '8', open = 1, close = 1, area = '', fill_holes: fills = false } = search.objects ?? {};
    $('finds').checked = Boolean(search.objects) && reports;
    set('colour', colour);
    set('connect', connect);
    set('open', open);
    set('close', close);
    set('area', area.split('..')[0] || 0);
    $('fill-holes').checked = fills;
    $('finding').hidden = !$('finds').checked;
    this.tellRanges();
  }

  tellRanges() {
    $('min-score-is').textContent = Number($('min-score').value).toFixed(2);
    $('max-matches-is').textContent = $('max-matches').value;
    $('block-is').textContent = this.typed?.block ?? $('block').value;
    $('frames-is').textContent = $('frames').value;
    $('value-is').textContent = $('value').value + (this.typed?.second === undefined ? '' : ` .. ${this.typed.second}`);
  }

  // A slider was moved: sends its last value, one request at a time.
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
    const { over, value } = METHODS[method] ?? {};
    const { block, second } = this.typed ?? {};
    const parts = [method];
    if (over) parts.push(over === 'block' ? block ?? $('block').value : $(over).value);
    if (value) parts.push($('value').value + (second === undefined ? '' : `..${second}`));
    if ($('inverted').checked) parts.push('inv');
    this.change({ threshold: method && parts.join(':') });
  }

  // Settings for which the page has no element stay as they are.
  changeObjects() {
    $('finding').hidden = !$('finds').checked;
    if (!$('finds').checked) return this.change({ objects: this.cleaning ?? null });
    const { size, max, area = '' } = this.objects ?? {};
    const whole = (id) => Math.max(0, Math.floor(Number($(id).value)) || 0);
    // A square has an odd side; another number would refuse all that is sent with it.
    const square = (id) => {
      const side = Math.min(255, whole(id) | 1);
      $(id).value = side;
      return side > 1 ? { [id]: String(side) } : {};
    };
    const most = area.split('..')[1] ?? '';
    const least = whole('area') > 1 ? whole('area') : '';
    return this.change({
      objects: {
        colour: $('colour').value,
        connect: $('connect').value,
        ...square('open'),
        ...square('close'),
        fill_holes: $('fill-holes').checked,
        ...(least || most ? { area: `${least}..${most}` } : {}),
        ...(size ? { size } : {}),
        ...(max == null ? {} : { max }),
      },
    });
  }

  // Adds pictures as templates, named after their files.
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

  // A box drawn with keys begins in the middle.
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
    else if (key === 'Enter' && this.corners.length) this.closeZone();
    else if (key === ' ') this.pause();
    else if (key === '.') this.step();
    else if (key === 'b') this.boxByKey();
    else if (key === 'm') this.use(this.tool === 'template' ? 'follow' : 'template');
    else if (key === 'z') this.use(this.tool === 'zone' ? 'follow' : 'zone');
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

// Of each method: what its threshold is made over, and its value's least, greatest, step and first.
const METHODS = {
  mean: { over: 'block', value: [-64, 64, 1, 5] },
  gaussian: { over: 'block', value: [-64, 64, 1, 5] },
  sauvola: { over: 'block', value: [-1, 1, 0.01, 0.2] },
  niblack: { over: 'block', value: [-1, 1, 0.01, -0.2] },
  wolf: { over: 'block', value: [-1, 1, 0.01, 0.5] },
  phansalkar: { over: 'block', value: [-1, 1, 0.01, 0.25] },
  bradley: { over: 'block', value: [-100, 100, 1, 15] },
  fixed: { value: [0, 255, 1, 128] },
  otsu: {},
  triangle: {},
  background: { over: 'frames', value: [0, 128, 1, 25] },
};

// Shows the sliders of a method; returns its first value.
function ranges(method) {
  const { over, value } = METHODS[method] ?? {};
  for (const id of ['block', 'frames']) $(`of-${id}`).hidden = over !== id;
  $('of-value').hidden = !value;
  if (!value) return 0;
  const [min, max, step, first] = value;
  Object.assign($('value'), { min, max, step });
  return first;
}

// ---- All videos ----

let wall = null;

class Wall {
  constructor(videos, offers) {
    $('wall').hidden = false;
    $('name').textContent = '';
    $('state').textContent = '';
    document.title = 'lockon';
    this.askAbout();
    this.aboutTimer = setInterval(() => this.askAbout(), 2000);
    this.cards = new Map();
    this.update(videos);
    // Videos begin and end while others run.
    this.timer = setInterval(() => ask('GET', '').then((now) => this.update(now)).catch(() => {}), 2000);
    this.observer.takeRecords();
    $('offers').hidden = true;
    if (offers !== null) this.offer(offers);
  }

  // The page as a whole: its name, videos that wait or failed, and its end.
  async askAbout() {
    const about = await call('GET', '/page').catch(() => null);
    if (!about || this.closed) return;
    $('name').textContent = about.name;
    document.title = about.name ? `${about.name} – lockon` : 'lockon';
    $('all-ended').hidden = !about.is_done;
    $('waiting').hidden = !about.waiting && !about.failed.length;
    const count = about.waiting === 1 ? '1 video waits' : `${about.waiting} videos wait`;
    $('waiting-count').textContent = about.waiting ? `${count} to be opened:` : '';
    const more = about.waiting - about.next.length;
    $('waiting-names').textContent = about.next.join(', ') + (more > 0 ? ` and ${more} more` : '');
    $('failed').replaceChildren(...about.failed.map(({ name, error }) => {
      const line = make('li');
      line.append(make('b', name), ` failed: ${error}`);
      return line;
    }));
  }

  // Cameras and files that can be opened: they may change at any time.
  async offer(now) {
    const offers = now ?? await call('GET', '/offers').catch(() => undefined);
    if (this.closed) return;
    if (offers === null) {
      // The command line named the videos, and there is one.
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
    $('more-files').textContent = `${offers.more} more files are not shown.`;
  }

  // Changed in place, so that the focus stays and nothing moves.
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

  // Only visible cards are connected.
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
        card = { id: status.id, link: make('a'), canvas: make('canvas'), is: make('span', '', 'state'), name: make('b'), about: make('span'), bar: make('i', '', 'bar'), look: null };
        card.link.href = `#${status.id}`;
        card.link.dataset.id = status.id;
        const frame = make('div', undefined, 'frame');
        frame.append(card.canvas, card.bar);
        const about = make('div', undefined, 'about');
        about.append(card.is, card.name, card.about);
        card.link.append(frame, about);
        $('videos').append(card.link);
        this.cards.set(status.id, card);
        this.observer.observe(card.link);
      }
      if (!card.look || isOver(status)) this.tell(card, status);
    }
  }

  tell(card, status) {
    card.is.dataset.is = status.state;
    card.is.textContent = status.state;
    card.name.textContent = status.name;
    card.status = status;
    const rest = { ended: `${status.frames} frames`, paused: status.waits ? 'waits for a box' : `frame ${status.frame}`, opening: '' };
    card.about.textContent = status.error ?? rest[status.state] ?? `${status.fps.toFixed(1)} fps`;
    card.about.title = card.about.textContent;
    const share = status.length_s ? (status.position_s - status.start_s) / status.length_s : 0;
    card.bar.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  }

  show(card, head, bitmap) {
    const { context, width, height } = sharp(card.canvas);
    const place = fit(width, height, head);
    context.drawImage(bitmap, place.x, place.y, head.width * place.kx, head.height * place.ky);
    drawRecord(context, place, head, { small: true, zones: card.status?.zones, lines: card.status?.lines });
    bitmap.close();
  }

  close() {
    this.closed = true;
    clearInterval(this.timer);
    clearInterval(this.aboutTimer);
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

// Ends lockon, which only waits for that after its last video.
async function closeAll() {
  const isClosed = await call('POST', '/page/close').then(() => true, (error) => { toast(error.message); return false; });
  if (!isClosed) return;
  view?.close();
  wall?.close();
  view = wall = null;
  for (const id of ['view', 'more']) $(id).hidden = true;
  $('state').textContent = '';
  $('closed').hidden = false;
}

async function copyText(text) {
  // Browsers offer the clipboard at secure addresses alone; this page may not be at one.
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied: ${text}`);
  } catch {
    prompt('Copy this option of lockon run:', text);
  }
}

// Opens a camera or a file, and shows it.
async function choose(button, wish) {
  button.disabled = true;
  const opened = await order('POST', '', wish);
  button.disabled = false;
  if (opened?.id === null) toast('It is still being opened.');
  else if (opened) location.hash = opened.id;
}

// ---- Navigation ----

function home() {
  if (location.hash === '') route();
  else location.hash = '';
}

async function route() {
  const here = location.hash;
  // Reading a folder may take long: videos that run are shown meanwhile.
  const offered = Promise.race([call('GET', '/offers').catch(() => {}), new Promise((done) => { setTimeout(done, 300); })]);
  const found = await Promise.all([ask('GET', ''), offered, call('GET', '/page')]).catch((error) => { toast(error.message); return null; });
  const [videos, offers, about] = found ?? [[], null, null];
  // The hash has changed meanwhile: that calls this function again.
  if (here !== location.hash) return;
  const isMore = about !== null && (about.waiting > 0 || about.failed.length > 0);
  if (!videos.length && offers === null && !(isMore && about.failed.length)) {
    setTimeout(route, 1000);
    return;
  }
  $('toast').hidden = true;
  view?.close();
  wall?.close();
  view = wall = null;
  const chosen = location.hash === '' ? null : Number(location.hash.slice(1));
  const isAlone = videos.length === 1 && offers === null && !isMore;
  const isOne = isAlone || videos.some((video) => video.id === chosen);
  for (const id of ['view', 'more']) $(id).hidden = !isOne;
  if (isOne) view = new View(isAlone ? videos[0].id : chosen);
  else wall = new Wall(videos, offers);
  if (isAlone && here === '') waitForOthers(view);
}

// The first of several videos may be open alone for a while. Shows all once there are more, unless the user is
// drawing or typing.
function waitForOthers(alone) {
  setTimeout(async () => {
    const videos = await ask('GET', '').catch(() => []);
    if (view !== alone) return;
    const isBusy = alone.still || alone.drag || alone.correcting !== null || alone.corners.length || alone.tool !== 'follow' || document.querySelector('dialog[open]');
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
$('tool-zone').onclick = () => view?.use('zone');
for (const button of document.querySelectorAll('.close')) button.onclick = closeAll;
$('seek').oninput = () => { if (view) view.seeking = true; };
$('seek').onchange = () => view?.jump(Number($('seek').value));
$('speed').onchange = () => { view?.setSpeed($('speed').value); $('speed').blur(); };
$('drawn-name').onkeydown = ({ key }) => { if (['Enter', 'Escape'].includes(key)) $('stage').focus(); };
$('pause').onclick = () => view?.pause();
$('step').onclick = () => view?.step();
$('view').onclick = () => view?.toggleMask();
$('snapshot').onclick = () => view?.snapshot();
$('correct').onclick = () => view?.correct();
$('rename').onclick = () => view?.rename();
$('forget').onclick = () => view?.forget();
$('clear').onclick = () => view && order('DELETE', `${view.path}/tracks`);
$('keys').onclick = () => $('help').showModal();
$('stop').onclick = () => { if (view && confirm('End this run? Its outputs will be completed.')) order('POST', `${view.path}/stop`); };
$('more').addEventListener('click', (event) => { if (event.target.closest('menu')) $('more').open = false; });
document.addEventListener('pointerdown', (event) => { if (!event.target.closest('#more')) $('more').open = false; });
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.target.closest('input, select')) return;
  // Space and Enter press a button that has the focus.
  if (event.target.closest('button, a, summary') && [' ', 'Enter'].includes(event.key)) return;
  if (event.key === '?') $('help').showModal();
  else view?.key(event);
});

$('min-score').oninput = () => view?.change({ min_score: Number($('min-score').value) });
$('max-matches').oninput = () => view?.change({ max_matches: Number($('max-matches').value) });
$('method').onchange = () => {
  const value = ranges($('method').value);
  Object.assign($('block'), { value: 31 });
  Object.assign($('frames'), { value: 200 });
  Object.assign($('value'), { value });
  if (view) view.typed = null;
  view?.changeThreshold();
};
for (const id of ['frames', 'value', 'inverted']) $(id).oninput = () => view?.changeThreshold();
$('block').oninput = () => {
  if (view?.typed) view.typed.block = $('block').value;
  view?.changeThreshold();
};
// Numbers when they are whole: half of one may be none.
for (const id of ['finds', 'colour', 'connect', 'open', 'close', 'area', 'fill-holes']) $(id).onchange = () => view?.changeObjects();
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
