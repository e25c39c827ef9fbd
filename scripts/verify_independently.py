# It fits in 125 lines, so that a person reads it in one sitting; tools that want more lines are off.
# fmt: off
# ruff: noqa: ANN001, ANN003, ANN201, B905, C408, C901, E401, E501, E701, E702, E731, I001, PLR0917, PLR2004, RUF017, S608, SIM905
# mypy: ignore-errors
"""Verifies a log, given its path: standard library only, written from docs/log-format.md alone. Exit 0 fine, 1 damaged, 3 no log."""
import decimal, functools, hashlib, json, pathlib, re, sqlite3, sys, zlib
WORDS, GATE = {"approval_decided", "operator_action"}, {"approval_decided", "operator_action", "approval_requested", "approval_consumed", "reserved", "intent", "pruned"}
ABOUT_STEPS = {"settled", "late_outcome", "probed", "compensation_intent", "compensation_outcome"}
KINDS = ABOUT_STEPS | GATE | {"saga_opened", "decision", "outcome", "rollback_started", "suspended", "claimed", "released", "abandoned", "waived", "scope_opened", "scope_ended", "replayed", "redacted", "saga_ended"}
MOVES = {"landed": "standing", "not_landed": "absent", "unknowable": "in_doubt", "succeeded": "standing", "failed": "absent", "in_doubt": "in_doubt", "happened": "standing", "did-not-happen": "absent", "compensated-by-hand": "compensated", "accept": "accepted"}
OUTCOMES = {"compensated": "compensated", "already_done": "compensated", "conflict": "conflicted", "failed": "compensation_failed", "in_doubt": "compensating"}
ENDED, ROW, NEW_STEP = ("committed", "rolled_back"), "name key incarnation state owner epoch on_crash opened_at due_at work human sealed amends head count amendments leaf".split(), dict(state=None, doubtful=False, landed=False, comp=False, next=None, tries=0, vain=0, verified=None, unwanted=False)
CHAINS = ("SELECT pos, saga, n, body, payload, hash FROM records WHERE saga = ?1 OR saga IN (SELECT saga FROM sagas WHERE amends = ?1) ORDER BY pos")
KEYED = set()
def stop(reason, saga="", n=""): sys.exit(print(f"damaged: saga {saga} record {n}: {reason}") or 1)
def check(pos, saga, n, body, payload, digest, before, swaps, bare, moved):
    try:
        record = json.loads(body, parse_float=lambda text: "\ue000" + text)  # The mark keeps a float as it was spelled.
        again = re.sub('"\ue000([^"]*)"', r"\1", json.dumps(record, separators=(",", ":"), ensure_ascii=False)).encode()
        values, held = record.get("values", {}), json.loads(payload) if payload is not None and payload[:1] != b"\1" else {}; wanted = {} if saga in bare else values | swaps.get((saga, n), {})
        sealed = bool(payload) and payload[:1] == b"\1" and saga in KEYED and wanted != {}  # Encrypted: its values cannot be checked without the key.
        opened = {name: hashlib.sha256(bytes.fromhex(salt) + text.encode()).hexdigest() for name, (salt, text) in held.items()}; spelled = json.dumps({name: [held[name][0].lower().replace(" ", ""), held[name][1]] for name in wanted}, separators=(",", ":"), ensure_ascii=False).encode() if wanted and not sealed else None
        if again != body or record["v"] != 1 or record["kind"] not in KINDS or wanted.keys() - values.keys() or (not sealed and (opened != wanted or spelled != payload)): stop("the body is not canonical, its kind or version not known, or the payload differs from its commitments", saga, n)
        if (record["saga"], record["n"], n) != (saga, n, before[1] + 1) or pos <= before[2] or (record["pos"] != pos and pos > moved): stop("the record is out of place", saga, n)
        if hashlib.sha256(before[0] + body).digest() != digest: stop("the chain is broken", saga, n)
        return record, (digest, n, pos)
    except (ValueError, KeyError, TypeError, AttributeError) as error: stop(f"unreadable: {error!r}", saga, n)
def fold_step(view, r, kind):
    step, state = view["steps"].setdefault(r["step"], dict(NEW_STEP)), r.get("state") or r.get("answer") or r.get("verdict")
    state, doubt = "in_doubt" if kind in ("outcome", "late_outcome") and state == "failed" and step["doubtful"] else state, step["state"] == "in_doubt"
    if kind == "intent": step.update(doubtful=doubt, attempt=r.get("attempt", 1), state="absent" if "refused" in r and not doubt else "in_doubt", recipe=r.get("recipe") or {}, scope=r.get("scope", 0), effect=r["effect"])
    elif kind == "late_outcome":
        news = state == "succeeded" and not step["landed"]
        if news and step["state"] in ("compensated", "compensating", "compensation_failed"): step.update(state="standing", tries=0)
        elif state != "in_doubt" and (step["state"] == "in_doubt" or (step["state"] == "absent" and state == "succeeded")): step["state"] = MOVES[state]
        if news: step.update(landed=True, next=None, recipe=r.get("recipe") or step["recipe"], comp=step["comp"] or r.get("bound", False), unwanted=view["state"] in ENDED)
    elif kind == "compensation_intent": step.update(state="compensating", tries=r["attempt"], next=None, verified=None, comp=True)
    elif kind == "compensation_outcome": step.update(state=OUTCOMES[state], next=r.get("next_at"), verified=r.get("verified"), vain=step["vain"] + (state == "in_doubt" and "next_at" in r))
    else:
        step.update(state=MOVES[state], next={"settled": None, "probed": r.get("next_at")}.get(kind, step["next"]), vain=step["vain"] + (state == "unknowable"))
        if step["state"] == "standing": step.update(landed=True, next=None, recipe=r.get("recipe") or step["recipe"], comp=step["comp"] or r.get("bound", False))
def fold(view, r, own):
    kind, state = r["kind"], view["state"]
    if (kind in ABOUT_STEPS and not (own and view["amends"])) or (own and (kind == "intent" or (kind == "outcome" and "tool" not in r))): fold_step(view, r, kind)
    if kind in GATE and "refused" not in r and (not (own and view["amends"]) if kind in WORDS else own):
        view["gate"].append(r | {"tried": view["steps"][r["step"]]["attempt"] if kind == "reserved" else 0})
    elif own and kind == "rollback_started": view.update(rolling=view["rolling"] | {r.get("scope", 0)}, state=state if r.get("scope", 0) else "rolling_back")
    elif own and kind == "scope_opened": view["parents"][r["scope"]] = r["parent"]
    elif own and kind in ("suspended", "abandoned", "released"): view.update({"released": {"until": r.get("next_at")}, "suspended": {"state": kind, "expires": r.get("expires_at")}}.get(kind, {"state": kind}), owner=None)
    elif own and kind == "claimed": view.update(owner=r["owner"], epoch=r["epoch"], expires=None, until=None, state="open" if state in ("suspended", "abandoned") else state)
    elif own and kind == "saga_ended": view.update(owner=None, state={"open": "committed", "rolling_back": "rolled_back"}.get(state, state))
def derive(view):
    rolls = lambda scope: scope in view["rolling"] or (scope != 0 and rolls(view["parents"][scope]))
    human = lambda s: {"in_doubt": s["next"] is None or s["vain"] >= 10, "conflicted": True, "standing": not s["comp"], "compensation_failed": s["next"] is None or s["tries"] >= 10, "compensating": not (s["recipe"].keys() & {"idempotent", "key_param"}) and ("verify" not in s["recipe"] or s["verified"] is False)}[s["state"]]
    left = [s for s in view["steps"].values() if view["state"] in ENDED and s["effect"] != "read_only" and (s["state"] in ("in_doubt", "compensating", "conflicted", "compensation_failed") or (s["state"] == "standing" and (view["state"] == "rolled_back" or s["unwanted"] or rolls(s["scope"]))))]
    due = (None if not (waits := [s["next"] for s in left if s["next"] is not None or not human(s)]) or None in waits else min(waits)) if view["state"] in ENDED else view["expires"] or view["until"]
    return view | dict(due_at=due, work=len(left), human=sum(map(human, left)), sealed=int(view["state"] in ENDED and not left and view["owner"] is None))
EXACT = decimal.Context(prec=800)
def facts_of(view, saga, sealed):
    facts, spent, last, asked, acts, add = set(), {}, {}, {}, [], lambda *amounts: str(EXACT.add(*map(decimal.Decimal, amounts)))
    for r in view["gate"]:
        kind, known = r["kind"], asked.get(r.get("approval"))
        if kind == "intent": facts |= {("resource", name, saga, 0, "", 0) for name in r.get("resources", ()) if not sealed}
        elif kind == "pruned": facts |= {("removed", one, saga, int(r.get("payloads_only", False)), held, at) for one, at, held in r["sagas"]}
        elif kind == "reserved": spent.setdefault((r["budget"], r["step"], r["tried"]), []).append(r); last[r["step"]] = max(r["tried"], last.get(r["step"], 0))
        elif kind == "approval_requested": asked[r["approval"]] = dict(state="pending", by=set(), quorum=r.get("quorum", 1), until=r["expires_at"])
        elif kind in ("approval_consumed", "operator_action"): known.update(state="consumed") if known else acts.append(r)
        elif known["state"] in ("pending", "approved"):
            if r["decision"] == "approved": known["by"].add(r["by"])
            if r["decision"] != "approved" or len(known["by"]) >= known["quorum"]: known["state"] = r["decision"]
    facts |= {("spend", budget, saga, step, functools.reduce(add, (r["amount"] for r in held)), held[-1]["at"]) for (budget, step, tried), held in spent.items() if tried == last[step] and view["steps"][step]["state"] != "absent"}
    facts |= {("approval", name, saga, 0, one["state"], one["until"]) for name, one in asked.items() if one["state"] in ("pending", "approved")}
    kind, text = ("key", "data") if acts and acts[0]["action"] == "key_added" else (acts and acts[0]["action"], "reason")
    return facts | ({(kind, acts[0]["scope"], saga, 0, acts[0].get(text, ""), acts[0].get("expires_at", 0))} if len(acts) == 1 else set())
def check_saga(db, saga, row, swaps, bare, gone, moved):
    if saga in gone:
        held = sorted([kind, *rest] for kind, *rest in db.execute("SELECT kind, name, no, value, at FROM facts WHERE saga = ?", (saga,)))
        kept = json.dumps([saga, *(row[name].hex() if name == "head" else row[name] for name in ROW), held], separators=(",", ":"), ensure_ascii=False)
        if hashlib.sha256(kept.encode()).hexdigest() != gone[saga][1] or db.execute("SELECT 1 FROM records WHERE saga = ?", (saga,)).fetchone(): stop("it was pruned, and its row or facts changed since, or it has records", saga)
        return row["count"], [(gone[saga][0], row["leaf"])], len(held)
    heads, view, at, facts, seen = {saga: (b"", 0, 0)}, None, 0, 0, 0
    for record in db.execute(CHAINS, (saga,)):
        r, heads[record[1]] = check(*record, heads[record[1]] if heads.get(record[1], (b"",))[0] else (bytes(32), 0, 0), swaps, bare, moved)
        own, opens = record[1] == saga, r["kind"] == "saga_opened"
        if (view is None) != (own and opens) or opens != (r["n"] == 1) or (opens and not own and r.get("amends") != saga): stop("saga_opened is out of place", record[1], r["n"])
        view = view or {"incarnation": 1, "on_crash": "roll_back", "key": None, "amends": None} | r | dict(opened_at=r["at"], state="open", expires=None, until=None, steps={}, rolling=set(), parents={}, gate=[])
        fold(view, r, own); facts, seen, at = facts + (not own), seen + own, at or (view["state"] in ENDED and derive(view)["sealed"] and record[0])
    expected = derive(view or stop("a row without records", saga)) | {"head": heads[saga][0], "count": heads[saga][1], "amendments": facts, "leaf": row["leaf"] if at else None}
    if (wrong := [name for name in ROW if expected[name] != row[name]]) or (at and not isinstance(row["leaf"], int)): stop(f"the row differs from the records in {wrong or 'leaf'}", saga)
    if set(held := db.execute("SELECT kind, name, saga, no, value, at FROM facts WHERE saga = ?", (saga,)).fetchall()) != facts_of(view, saga, row["sealed"]): stop("the facts differ from the records", saga)
    return seen, [(at, row["leaf"])] if at else [], len(held)
def check_order(db, gone, last, skipped, **_):
    roots, newest, before, seen = {}, {}, (0, ""), [0]
    for (body,) in db.execute("SELECT body FROM records WHERE pos <= ? ORDER BY pos", (last,)):
        r = json.loads(body); root = roots.setdefault(r["saga"], roots.get(r.get("amends"), r["saga"])); at, pos = newest.get(root, (0, 0)); newest[root], key = (max(at, r["at"]), r["pos"]), (max(at, r["at"]), root); seen.append(r["pos"])
        if key < before or r["pos"] <= pos: stop("the record is out of the order of a merged log", r["saga"], r["n"])
        before = key
    if not gone and (len(seen) - 1 != last - skipped or skipped != max(0, max(seen) - last + skipped)): stop("the merge gave other positions than it says")
def main(path):
    mark, boot = pathlib.Path(path + "-mark"), pathlib.Path("/proc/sys/kernel/random/boot_id")
    if not pathlib.Path(path).is_file() or not pathlib.Path(path).stat().st_size: sys.exit(print(f"no log at {path}") or 3)
    line, now = mark.read_bytes().decode("ascii", "replace") if mark.exists() else "", boot.read_text().strip() if boot.exists() else ""
    (db := sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)).execute("BEGIN")
    meta, (last,) = dict(db.execute("SELECT name, value FROM meta")), db.execute("SELECT coalesce(max(pos), 0) FROM records").fetchone()
    if meta.get("format") != "1" or db.execute("PRAGMA application_id").fetchone() != (0x53414741,): sys.exit(print(f"not a log of format 1: {path}") or 3)
    _, _, log, written_in, written, durable, crc = line.split(" ") if line.count(" ") == 6 else [""] * 7
    if crc == f"{zlib.crc32(line[:-10].encode()):08x}\n" and log == meta["log"] and last < int(written if written_in == now else durable): stop("the log is behind its mark")
    KEYED.update(name[4:] for name in meta if name.startswith("key "))
    rows = {saga: dict(zip(ROW, rest)) for saga, *rest in db.execute(f"SELECT saga, {', '.join(ROW)} FROM sagas")}
    swaps, bare, gone = {}, set(), {}
    for (body,) in db.execute("SELECT body FROM records WHERE substr(body, 1, 18) IN (CAST('{\"kind\":\"redacted\"' AS BLOB), CAST('{\"kind\":\"pruned\",\"' AS BLOB)) ORDER BY pos"):
        r = json.loads(body); bare |= {one for one, *_ in r["sagas"]} if r.get("payloads_only") else set(); gone |= {one: rest for one, *rest in r.get("sagas", ()) if not r.get("payloads_only")}
        if r["kind"] == "redacted": swaps.setdefault((rows[r["saga"]]["amends"], r["record"]), {}).update(r["replaced"])
    merged = json.loads(meta.get("merged", '{"logs":[],"last":0,"skipped":0}')); check_order(db, gone, **merged)
    found = [check_saga(db, saga, row, swaps, bare, gone, merged["last"]) for saga, row in rows.items()]
    if sum(seen for seen, *_ in found) + merged["skipped"] != last or [leaf for _, leaf in sorted(sum((x for _, x, _ in found), []))] != [*range(1, 1 + sum(len(x) for _, x, _ in found))]: stop("positions or leaves have gaps, or leaves are out of order")
    if db.execute("SELECT count(*) FROM facts WHERE kind <> 'total'").fetchone() != (sum(held for *_, held in found),): stop("there are facts of no saga")
    for name, *total in db.execute("SELECT name, saga, no, at, value FROM facts WHERE kind = 'total'").fetchall():
        spent = [amount for (amount,) in db.execute("SELECT value FROM facts WHERE kind = 'spend' AND name = ?", (name,))]
        if not spent or total != ["", 0, len(spent), str(EXACT.normalize(functools.reduce(EXACT.add, map(decimal.Decimal, spent))))]: stop(f"the total of budget {name} is not what was spent of it")
    if {row["key"]: saga for saga, row in sorted(rows.items(), key=lambda item: item[1]["incarnation"]) if row["key"] is not None} != dict(db.execute("SELECT key, saga FROM keys")): stop("the keys do not lead to their newest sagas")
    print(f"undamaged: {len(rows)} sagas, {last} records" + f"; not checked: the encrypted values of {len(KEYED)} sagas" * bool(KEYED))
if __name__ == "__main__":
    try: main(sys.argv[1])
    except sqlite3.DatabaseError as error: sys.exit(print(f"cannot be read: {error}") or (1 if "malformed" in str(error) else 3))
