// The lines of edges. No line crosses a box that is not one of its ends, so that none looks like two edges.
// A line is a list of cubic curves; a box is { x, y, w, h } by its middle.
const ArithLensRoute = (() => {
  "use strict";
  const STEPS = 16, MARGINS = [6, 3, 1.5], BEND = 12;
  const BENDS = [[0.5, 0.5], [0.3, 0.8], [0.8, 0.3], [0.8, 0.8]];  // how far a line keeps the direction of its ends
  const sides = ({ x, y, w, h }, by) => [x - w / 2 - by, x + w / 2 + by, y - h / 2 - by, y + h / 2 + by];
  // Whether the straight line from p to q meets the inside of a box with these sides.
  function meets([px, py], [qx, qy], [left, right, top, bottom]) {
    if (Math.max(px, qx) <= left || Math.min(px, qx) >= right || Math.max(py, qy) <= top || Math.min(py, qy) >= bottom) return false;
    let from = 0, to = 1;
    for (const [p, d, low, high] of [[px, qx - px, left, right], [py, qy - py, top, bottom]]) {
      if (Math.abs(d) < 1e-9) { if (p <= low || p >= high) return false; continue; }
      const [a, b] = [(low - p) / d, (high - p) / d].sort((x, y) => x - y);
      from = Math.max(from, a);
      to = Math.min(to, b);
    }
    return to - from > 1e-6;
  }
  const at = ([p, q, r, s], t) => [0, 1].map(i => (1 - t) ** 3 * p[i] + 3 * t * (1 - t) ** 2 * q[i] + 3 * t * t * (1 - t) * r[i] + t ** 3 * s[i]);
  const points = line => line.flatMap((cubic, place) => [...Array(STEPS + 1).keys()].slice(place ? 1 : 0).map(step => at(cubic, step / STEPS)));
  const text = line => `M${line[0][0]} ` + line.map(([, ...others]) => `C${others.map(point => point.map(x => x.toFixed(1))).join(" ")}`).join(" ");
  const middle = (p, q, t) => [0, 1].map(i => p[i] + (q[i] - p[i]) * t), straight = (p, q) => [p, middle(p, q, 1 / 3), middle(p, q, 2 / 3), q];
  // From p to q along the directions in which they are left and reached.
  function swing(p, q, [ax, ay], [bx, by], [out, into]) {
    const [dx, dy] = [Math.abs(q[0] - p[0]), Math.abs(q[1] - p[1])], of = (bend, x) => Math.max(10, bend * (x ? dx : dy));
    const [a, b] = [of(out, ax), of(into, bx)];
    return [p, [p[0] + ax * a, p[1] + ay * a], [q[0] - bx * b, q[1] - by * b], q];
  }
  const UP = [0, -1], RIGHT = [1, 0], LEFT = [-1, 0];
  // Where a line may leave a box, and where it may reach one.
  const ports = { out: (a, b) => {
    const right = [[a.x + a.w / 2, a.y], RIGHT], top = [[a.x, a.y - a.h / 2], UP];
    if (a.onStream) return [right];
    if (a.port) return [[[a.port, a.rise], UP]];
    return [top, ...[1, -1].map(side => [[a.x + side * a.w / 4, a.y - a.h / 2], UP]), ...b.onStream ? [right] : []];
  }, in: (a, b, slot) => a.onStream && b.onStream ? [[[b.x + b.w / 2, b.y], LEFT]]
    : b.onStream ? [[[b.x - b.w / 2, b.y], RIGHT]] : [slot, 0, -1, 1].map(side => [[b.x + side * (b.w / 2 - 8), b.y + b.h / 2], UP]) };
  const pairs = (a, b, slot) => ports.out(a, b).flatMap(out => ports.in(a, b, slot).map(into => [out, into]));

  // Round the boxes: the shortest way along the corners of boxes that are wider by a margin.
  class Routes {
    // boxes: all of a picture; room: [left, right, top, bottom], which no line leaves.
    constructor(boxes, room) { Object.assign(this, { boxes, room, nets: new Map() }); }
    // The sides that a line between two boxes must not meet; its own ends only from within.
    walls(ends, margin) { return this.boxes.map(box => sides(box, ends.includes(box) ? -1 : margin)); }
    free(all, walls) {
      const [left, right, top, bottom] = this.room;
      return all.every(([x, y]) => x >= left && x <= right && y >= top && y <= bottom)
        && !all.slice(1).some((q, place) => walls.some(wall => meets(all[place], q, wall)));
    }
    net(margin) {
      if (this.nets.has(margin)) return this.nets.get(margin);
      const walls = this.boxes.map(box => sides(box, margin - 0.01)), [left, right, top, bottom] = this.room;
      const corners = this.boxes.flatMap(box => { const [l, r, t, b] = sides(box, margin); return [[l, t], [l, b], [r, t], [r, b]]; })
        .filter(([x, y]) => x > left && x < right && y > top && y < bottom && !walls.some(([l, r, t, b]) => x > l && x < r && y > t && y < b));
      const near = corners.map(() => []);
      corners.forEach((p, i) => corners.slice(0, i).forEach((q, j) => {
        if (!walls.some(wall => meets(p, q, wall))) { near[i].push(j); near[j].push(i); }
      }));
      this.nets.set(margin, { corners, near });
      return this.nets.get(margin);
    }
    // The shortest way from one of the ports `out` to one of `into`, with its directions; null if there is none.
    way(out, into, ends, margin) {
      const { corners, near } = this.net(margin), walls = this.walls(ends, margin - 0.01), far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
      const nearest = (corner, ports) => ports.map(port => [far(port[0], corner), port]).sort((a, b) => a[0] - b[0])
        .find(([, [point]]) => this.free([point, corner], walls)) ?? [Infinity, null];
      const first = corners.map(corner => nearest(corner, out)), last = corners.map(corner => nearest(corner, into));
      const best = first.map(([long]) => long), from = corners.map(() => -1), open = new Set(corners.keys());
      let goal = -1, cost = Infinity;
      while (open.size) {
        let here = -1;
        for (const one of open) if (here < 0 || best[one] < best[here]) here = one;
        open.delete(here);
        if (best[here] >= cost) break;
        if (best[here] + last[here][0] < cost) { goal = here; cost = best[here] + last[here][0]; }
        for (const next of near[here]) {
          const sum = best[here] + far(corners[here], corners[next]) + BEND;
          if (sum < best[next]) { best[next] = sum; from[next] = here; }
        }
      }
      if (goal < 0) return null;
      const back = [];
      for (let here = goal; here >= 0; here = from[here]) back.unshift(here);
      const [[, start], [, end]] = [first[back[0]], last[goal]];
      return { way: [start[0], ...back.map(one => corners[one]), end[0]], leave: start[1], reach: end[1] };
    }
    // A way with its corners rounded; `most` is how long a rounding may be.
    rounded(way, most) {
      const line = [];
      let start = way[0];
      way.slice(1, -1).forEach((corner, place) => {
        const [before, after] = [way[place], way[place + 2]], reach = other => Math.min(most / Math.hypot(corner[0] - other[0], corner[1] - other[1]), 0.5);
        const [a, b] = [middle(corner, before, reach(before)), middle(corner, after, reach(after))];
        line.push(straight(start, a), [a, middle(a, corner, 2 / 3), middle(b, corner, 2 / 3), b]);
        start = b;
      });
      return [...line, straight(start, way.at(-1))];
    }
    candidates(a, b, slot) {
      if (a.onStream && b.onStream) {
        const [[[p], [q]]] = pairs(a, b, slot);
        return [0, 8, 16, 24].map(more => Math.min(28 + Math.abs(a.y - b.y) / 9 + more, 72)).map(side => [[p, [p[0] + side, p[1] - 8], [q[0] + side, q[1] + 8], q]]);
      }
      return pairs(a, b, slot).flatMap(([[p, out], [q, into]]) => BENDS.map(bend => [swing(p, q, out, into, bend)]));
    }
    // The line from box a to box b, as the text of a path; slot: from -1 to 1, where it reaches b from below.
    line(a, b, slot = 0) {
      const foot = a.port ? [straight([a.port, a.y - a.h / 2], [a.port, a.rise])] : [];
      return text([...foot, ...this.curves(a, b, slot)]);
    }
    curves(a, b, slot) {
      const ends = [a, b], direct = this.candidates(a, b, slot).map(line => ({ line, all: null }));
      for (const margin of MARGINS) {
        const walls = this.walls(ends, margin), free = direct.find(one => this.free(one.all ??= points(one.line), walls));
        if (free) return free.line;
      }
      for (const margin of MARGINS.slice(1)) {
        const best = this.way(ports.out(a, b), ports.in(a, b, slot), ends, margin), walls = this.walls(ends, margin / 2);
        if (!best) continue;
        const { way, leave, reach } = best, last = way.length - 2;
        const curved = way.slice(1).map((q, place) => swing(way[place], q, place ? UP : leave, place < last ? UP : reach, BENDS[0]));
        const line = [curved, ...[40, 2 * margin, 0.1].map(most => this.rounded(way, most))].find(one => this.free(points(one), walls));
        if (line) return line;
      }
      return direct[0].line;
    }
  }
  return { Routes };
})();
