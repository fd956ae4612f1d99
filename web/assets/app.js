// What the pages do beyond showing: they follow changes, count times and answer keys. Without this file they
// are whole all the same.

const $ = (sel, at = document) => at.querySelector(sel)
const $$ = (sel, at = document) => [...at.querySelectorAll(sel)]
const maxLines = 20000 // kept in the page; the server has all of them

// ---- times ----

function lasted(ms) {
  const s = Math.max(0, ms / 1000)
  if (s < 10) return s.toFixed(1) + ' s'
  if (s < 60) return Math.floor(s) + ' s'
  if (s < 3600) return Math.floor(s / 60) + ':' + String(Math.floor(s % 60)).padStart(2, '0')
  return Math.floor(s / 3600) + ' h ' + String(Math.floor(s / 60) % 60).padStart(2, '0') + ' m'
}

function ago(ms) {
  const s = Math.max(0, ms / 1000)
  if (s < 5) return 'just now'
  if (s < 60) return Math.floor(s) + ' s ago'
  if (s < 3600) return Math.floor(s / 60) + ' min ago'
  if (s < 48 * 3600) return Math.floor(s / 3600) + ' h ago'
  if (s < 30 * 86400) return Math.floor(s / 86400) + ' d ago'
  return ''
}

function tick() {
  const now = Date.now()
  for (const e of $$('[data-since]')) e.textContent = lasted(now - Date.parse(e.dataset.since))
  for (const e of $$('time[data-ago]')) {
    const text = ago(now - Date.parse(e.dateTime))
    if (text && e.textContent !== text) e.textContent = text
  }
}
setInterval(() => { if (!document.hidden) tick() }, 1000)

// ---- live sections ----

// replace swaps a section for its next state, and keeps the focus where it was.
function replace(id, html) {
  const old = document.getElementById(id)
  if (!old) return
  const held = old.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null
  const box = document.createElement('template')
  box.innerHTML = html
  const next = box.content.firstElementChild
  if (!next) return
  old.replaceWith(next)
  if (held) $$('a[href]', next).find(a => a.getAttribute('href') === held)?.focus({ preventScroll: true })
}

const conn = $('#conn')
function say(state, text) {
  conn.hidden = false
  conn.className = 'conn ' + state
  if (conn.textContent !== text) conn.textContent = text
}

const log = $('#log')
let following = log?.hasAttribute('data-follow') ?? false
let cursor = null // the line after the last one in the page
let source = null
let finished = false
let retry = 0

function toEnd() { scrollTo({ top: document.documentElement.scrollHeight, behavior: 'instant' }) }
function atEnd() { return innerHeight + scrollY > document.documentElement.scrollHeight - 80 }

function addLines(d) {
  if (!log || cursor !== null && d.next <= cursor) return
  cursor = d.next
  log.insertAdjacentHTML('beforeend', d.html)
  $('#log-empty')?.remove()
  let extra = log.childElementCount - maxLines
  while (extra-- > 0) log.firstElementChild.remove()
  const count = $('#log-count')
  const first = log.firstElementChild?.id.slice(1)
  if (count && first) count.textContent = first + '–' + d.next
  if (following) toEnd()
}

// poll is for when no stream can be had: the page is fetched again and its sections are taken from it.
async function poll() {
  if (log) { location.reload(); return }
  try {
    const r = await fetch(location.href, { headers: { accept: 'text/html' } })
    if (!r.ok) return
    const doc = new DOMParser().parseFromString(await r.text(), 'text/html')
    for (const e of $$('[id^="live-"]')) {
      const n = doc.getElementById(e.id)
      if (n && n.outerHTML !== e.outerHTML) e.replaceWith(document.adoptNode(n))
    }
    tick()
  } catch { /* the next turn tries again */ }
}

function open() {
  const base = document.body.dataset.live
  if (!base || finished || source) return
  const u = new URL(base, location.href)
  if (cursor !== null && u.searchParams.has('line')) u.searchParams.set('line', cursor)
  source = new EventSource(u)
  source.onopen = () => { retry = 0; say('on', 'live') }
  source.onerror = () => {
    say('off', 'reconnecting')
    if (source.readyState !== EventSource.CLOSED) return // the browser tries again by itself
    source = null
    retry = Math.min(retry + 1, 6)
    setTimeout(async () => { await poll(); open() }, 2500 * retry)
  }
  source.addEventListener('html', e => {
    const d = JSON.parse(e.data)
    for (const [id, html] of Object.entries(d.html)) replace(id, html)
    document.title = d.title + ' · ' + $('.brand span').textContent
    tick()
  })
  source.addEventListener('lines', e => addLines(JSON.parse(e.data)))
  source.addEventListener('done', () => {
    finished = true
    source.close()
    source = null
    conn.hidden = true
    setFollow(false)
    $('#t-follow')?.setAttribute('hidden', '')
  })
}

function close() { source?.close(); source = null }

// A page in the background holds no stream: browsers allow only a few to one server.
document.addEventListener('visibilitychange', () => document.hidden ? close() : open())
addEventListener('pagehide', close)
addEventListener('pageshow', open)
if (!document.hidden) open()

// ---- the log ----

function setFollow(on) {
  following = on
  $('#t-follow')?.setAttribute('aria-pressed', on)
  if (on) toEnd()
}

function toggle(id, cls, inverted) {
  const b = $(id)
  if (!b || !log) return
  const on = b.getAttribute('aria-pressed') !== 'true'
  b.setAttribute('aria-pressed', on)
  log.classList.toggle(cls, inverted ? !on : on)
  try { localStorage.setItem('log' + cls, on ? '1' : '0') } catch { /* not kept, then */ }
}

if (log) {
  for (const e of $$('.js')) e.hidden = false
  const last = log.lastElementChild?.id
  if (last) cursor = Number(last.slice(1))
  for (const [id, cls, inverted, def] of [['#t-wrap', 'nowrap', true, '1'], ['#t-time', 'times', false, '0']]) {
    let kept = null
    try { kept = localStorage.getItem('log' + cls) } catch { /* none */ }
    $(id).onclick = () => toggle(id, cls, inverted)
    if ((kept ?? def) !== def) toggle(id, cls, inverted)
  }
  $('#t-follow').onclick = () => setFollow(!following)
  // Scrolling up by hand lets go of the end; scrolling back down takes hold of it again.
  let y = scrollY
  addEventListener('scroll', () => {
    if (!finished && document.body.dataset.live && !$('#t-follow').hidden) {
      if (scrollY < y - 4 && following && !atEnd()) setFollow(false)
      else if (scrollY > y && !following && atEnd()) setFollow(true)
    }
    y = scrollY
  }, { passive: true })

  // #L10-L20 marks a range; a click with shift on a number makes one.
  const pick = () => {
    for (const e of $$('.picked')) e.classList.remove('picked')
    const m = /^#L(\d+)-L(\d+)$/.exec(location.hash)
    if (!m) return
    const [a, b] = [Number(m[1]), Number(m[2])].sort((x, z) => x - z)
    for (let n = a; n <= b && n < a + 5000; n++) document.getElementById('L' + n)?.classList.add('picked')
    document.getElementById('L' + a)?.scrollIntoView({ block: 'center' })
  }
  addEventListener('hashchange', pick)
  let anchor = null
  log.addEventListener('click', e => {
    const no = e.target.closest('.no')
    if (!no) return
    setFollow(false)
    const n = no.dataset.n
    if (e.shiftKey && anchor) {
      e.preventDefault()
      location.hash = 'L' + anchor + '-L' + n
    } else anchor = n
  })
  pick()
  if (location.hash) following = false
  if (following) toEnd()
  $('#t-follow').setAttribute('aria-pressed', following)
}

// ---- keys ----

const keys = $('#keys')
const keysOn = $('#keys-on')
try { keysOn.checked = localStorage.getItem('keys') !== '0' } catch { /* on */ }
keysOn.onchange = () => { try { localStorage.setItem('keys', keysOn.checked ? '1' : '0') } catch { /* not kept */ } }
$('#keys-open').hidden = false
$('#keys-open').onclick = () => keys.showModal()

function move(by) {
  const all = $$('[data-nav] .title')
  if (!all.length) return
  const at = all.indexOf(document.activeElement)
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + by))]
  next.focus()
  next.scrollIntoView({ block: 'nearest' })
}

function step(by) {
  const all = $$('.log h3[id^="step-"]')
  const here = scrollY + 80
  const at = all.map(h => h.getBoundingClientRect().top + scrollY)
  const next = by > 0 ? all.find((_, i) => at[i] > here + 4) : all.findLast((_, i) => at[i] < here - 4)
  if (!next) return
  setFollow(false)
  next.scrollIntoView({ block: 'start' })
  next.focus({ preventScroll: true })
}

let lead = ''
document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || keys.open || e.target.closest('input, textarea, select')) return
  if (e.key !== '?' && !keysOn.checked) return
  const seq = lead + e.key
  lead = ''
  switch (seq) {
    case '?': keys.showModal(); break
    case 'j': move(1); break
    case 'k': move(-1); break
    case 'g': lead = 'g'; break
    case 'go': location.href = '/'; break
    case 'u': { const up = $$('.crumb a').at(-1); if (up) location.href = up.href; break }
    case 'f': if (log && !$('#t-follow').hidden) setFollow(!following); break
    case 'w': toggle('#t-wrap', 'nowrap', true); break
    case 't': toggle('#t-time', 'times', false); break
    case '[': step(-1); break
    case ']': step(1); break
    default: return
  }
  e.preventDefault()
})
