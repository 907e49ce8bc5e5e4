"""The verbs of the API over the store: get, list, create, update, patch, delete. Synchronous, so each is atomic.

Source of the order of steps: apiserver `pkg/registry/generic/registry/store.go`.
"""

from __future__ import annotations

from muster.api.codec import JSON, Object, Objects, dumps
from muster.apiserver import deletion, errors, listing, managed, metadata
from muster.apiserver.admission import namespace_lifecycle
from muster.apiserver.authorization.attributes import Attributes, denied
from muster.apiserver.authorization.authorizer import authorizer
from muster.apiserver.bodies import GO_NAMES, DeleteOptions, Patch, check_type
from muster.apiserver.context import Context
from muster.apiserver.decoding import WrongValue
from muster.apiserver.errors import Qualified, StatusError
from muster.apiserver.fields import FieldError, invalid_value
from muster.apiserver.limit_ranges import check_ranges, default_from_ranges
from muster.apiserver.node_restriction import restrict
from muster.apiserver.patching import as_merged, patched
from muster.apiserver.quota_admission import charges
from muster.apiserver.registry.strategy import Strategy
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Served
from muster.apiserver.store.protocol import Store
from muster.client.transport import APPLY_PATCH


def resource_name(served: Served) -> Qualified:
    """The resource as messages name it."""
    return Qualified(served.resource.group, served.resource.plural)


def kind_name(served: Served) -> Qualified:
    """The kind as messages name it."""
    return Qualified(served.resource.group, served.resource.kind)


def shown_as(served: Served, stored: Object) -> Object:
    """A stored object in the version of `served`; it may be the stored object itself."""
    return served.conversion.from_stored(stored) if served.conversion else stored


def _stored_as(served: Served, obj: Object, old: Object | None) -> Object:
    return served.conversion.to_stored(obj, old) if served.conversion else obj


def writer_of(ctx: Context, served: Served) -> managed.Writer:
    """Who owns what this request writes."""
    strategy = served.strategy
    return managed.Writer(
        ctx.manager,
        served.resource.api_version,
        ctx.timestamp,
        ctx.subresource,
        served.subresource("status") is not None,
        not strategy.status_keeps_metadata,
    )


def _check_may_create(ctx: Context, served: Served, namespace: str, name: str) -> None:
    """Who may change an object must also be allowed to create it before that can make a new one."""
    resource = served.resource
    attributes = Attributes("create", True, resource.group, resource.plural, "", namespace, name)
    decision = authorizer(ctx.options.authorization_modes, ctx.store)(ctx.user, attributes)
    if not decision.is_allowed:
        raise denied(ctx.user, attributes, decision.reason)


class Verbs:
    """The verbs over one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def stored(self, served: Served, namespace: str, name: str) -> Object:
        """The object in its stored form. Raises StatusError (404)."""
        obj = self.store.get(served.key(namespace, name))
        if obj is None:
            raise errors.not_found(resource_name(served), name)
        return obj

    def get(self, ctx: Context, served: Served, namespace: str, name: str) -> Object:
        computed = served.strategy.computed(ctx, namespace)
        if computed is not None:
            found = next((obj for obj in computed if obj["metadata"]["name"] == name), None)
            if found is None:
                raise errors.not_found(resource_name(served), name)
            return found
        return shown_as(served, self.stored(served, namespace, name))

    def list(self, ctx: Context, served: Served, namespace: str, request: ApiRequest) -> Object:
        computed = served.strategy.computed(ctx, namespace)
        if computed is not None:
            return listing.list_computed(self.store, served, computed, request)
        return listing.list_objects(self.store, served, namespace, request)

    def create(self, ctx: Context, served: Served, namespace: str, obj: Object) -> Object:
        """Store a new object, which is changed on the way."""
        meta, strategy = obj["metadata"], served.strategy
        _settle_namespace(served, meta, namespace)
        # Upstream asks only whether it is a number other than 0.
        if (meta.get("resourceVersion") or "0").strip("0").isdecimal():
            raise errors.failure(500, "", "resourceVersion should not be set on objects to be created")
        if namespace:
            namespace_lifecycle(ctx, served, namespace, meta.get("name", ""))
        strategy.default(obj, ctx)
        entries = self._entries_of_new(ctx, served, obj)
        strategy.admit_create(obj, ctx)
        restrict(ctx, served, "create", meta.get("name", ""), obj, None)
        default_from_ranges(ctx, served, namespace, obj)
        metadata.generate_name(meta, ctx.rng, lambda name: self.store.get(served.key(namespace, name)) is not None)
        metadata.complete_new(meta, ctx)
        if entries:
            meta["managedFields"] = entries
        if strategy.has_status:
            obj.pop("status", None)
        if strategy.counts_generation or strategy.starts_generation:
            meta["generation"] = 1
        strategy.prepare_create(obj, ctx)
        problems = metadata.validate_metadata(meta, strategy) + strategy.validate(obj, ctx)
        if problems:
            raise errors.invalid(kind_name(served), meta.get("name", ""), problems)
        strategy.review_create(obj, ctx)
        check_ranges(ctx, served, namespace, obj)
        charged = charges(ctx, served, namespace, obj)
        key = served.key(namespace, meta["name"])
        if self.store.get(key) is not None:
            raise errors.already_exists(resource_name(served), meta["name"])
        if ctx.dry_run:
            return obj
        for quota_key, quota in charged:
            self.store.put(quota_key, quota)
        return shown_as(served, self._put(ctx, served, key, _stored_as(served, obj, None)))

    def answer(self, ctx: Context, served: Served, obj: Object) -> Object:
        """The answer to an object that is a question. Raises StatusError (422)."""
        entries = self._entries_of_new(ctx, served, obj)
        if entries:
            obj["metadata"]["managedFields"] = entries
        problems = served.strategy.validate(obj, ctx)
        if problems:
            # Upstream names neither kind nor object here.
            raise errors.invalid(Qualified(served.resource.group, ""), "", problems)
        return served.strategy.answer(obj, ctx)

    def update(self, ctx: Context, served: Served, namespace: str, name: str, new: Object) -> Object:
        """Replace an object by `new`, which is changed on the way."""
        _check_name(new["metadata"], name)
        _settle_namespace(served, new["metadata"], namespace)
        stored = self.store.get(served.key(namespace, name))
        if stored is None:
            if not served.strategy.creates_on_update:
                raise errors.not_found(resource_name(served), name)
            new["metadata"].setdefault("name", name)
            ctx.is_new = True
            _check_may_create(ctx, served, namespace, name)
            return self.create(ctx, served, namespace, new)
        _require_version(served, new["metadata"])
        return self.write(ctx, served, stored, new)

    def patch(self, ctx: Context, served: Served, namespace: str, name: str, patch: Patch) -> Object:
        """Change an object by a patch; apply creates it where it is missing."""
        stored = self.store.get(served.key(namespace, name))
        if patch.type == APPLY_PATCH:
            check_type(patch.value, served.resource.api_version, served.resource.kind)
            if stored is None:
                ctx.is_new = True
                _check_may_create(ctx, served, namespace, name)
                new = self.after_patch(ctx, served, None, patch, name)
                new["apiVersion"], new["kind"] = served.resource.api_version, served.resource.kind
                return self.create(ctx, served, namespace, new)
        if stored is None:
            raise errors.not_found(resource_name(served), name)
        new = self.after_patch(ctx, served, shown_as(served, stored), patch, name)
        if served.strategy.needs_version_on_update:
            _require_version(served, new["metadata"])
        return self.write(ctx, served, stored, new, patches=True)

    def after_patch(self, ctx: Context, served: Served, old: Object | None, patch: Patch, name: str) -> Object:
        """The state that a patch asks for: a fresh object. Raises StatusError (400, 409, 422, 500).

        `old` None: there is no object, and the patch is an apply.
        """
        schema = ctx.types.schema(served.resource)
        if patch.type == APPLY_PATCH:
            new = self._applied(ctx, served, old, patch, name)
        else:
            assert old is not None
            new = patched(old, patch, schema)
        _check_patched(served, new, name, old)
        return _decode_patched(ctx, served, new, patch)

    def _applied(self, ctx: Context, served: Served, old: Object | None, patch: Patch, name: str) -> Object:
        """The object after an apply; the request's context takes its managedFields."""
        config: Object = patch.value
        _check_applied(config)
        schema, writer = ctx.types.schema(served.resource), writer_of(ctx, served)
        managed.check(config, schema)
        given = config.get("metadata") or {}
        if given.get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        config = {**config, "metadata": {"name": name, **given}}
        entries = old["metadata"].get("managedFields") or [] if old is not None else []
        new, ctx.entries = managed.applied(entries, old, config, schema, writer, force=patch.force)
        return new

    def _entries_of_new(self, ctx: Context, served: Served, obj: Object) -> Objects:
        """The managedFields of a new object."""
        if ctx.entries is not None or not ctx.tracks:
            return ctx.entries or []
        return managed.after_create(obj, ctx.types.schema(served.resource), writer_of(ctx, served))

    def entries_after(self, ctx: Context, served: Served, old: Object, new: Object, sent: JSON) -> Objects:
        """The managedFields after a change from `old` to `new`; `sent`: those that the writer sent along."""
        if ctx.entries is not None:
            return ctx.entries
        before = old["metadata"].get("managedFields") or []
        entries = before if ctx.subresource else managed.entries_to_start_from(sent, before)
        if not entries:
            return entries
        return managed.after_update(entries, old, new, ctx.types.schema(served.resource), writer_of(ctx, served))

    def write(self, ctx: Context, served: Served, stored: Object, new: Object, *, patches: bool = False) -> Object:
        """Make `new` (ours to change, in the version of `served`) the next state of a stored object.

        `patches`: it comes from a patch, so that its uid is only a field that may not change.
        """
        strategy, old = served.strategy, shown_as(served, stored)
        self.check_preconditions(served, new["metadata"], stored, patches=patches)
        strategy.default(new, ctx)
        restrict(ctx, served, "update", old["metadata"]["name"], new, old)
        entries = self.entries_after(ctx, served, old, new, new["metadata"].get("managedFields"))
        fixed = metadata.validate_fixed(new["metadata"], old["metadata"])
        metadata.restore_fixed(new["metadata"], old["metadata"])
        if entries:
            new["metadata"]["managedFields"] = entries
        if strategy.has_status:
            _restore(new, old, "status")
        strategy.prepare_update(new, old, ctx)
        if strategy.counts_generation and _differs(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        repeats = ctx.options.emulate in ("1.35", "1.36")
        problems = fixed + metadata.validate_metadata_update(
            new["metadata"], old["metadata"], strategy, repeats=repeats
        )
        problems += strategy.validate_update(new, old, ctx)
        if problems:
            raise errors.invalid(kind_name(served), old["metadata"]["name"], problems)
        strategy.review_update(new, old, ctx)
        return self.commit(ctx, served, stored, new)

    def write_status(
        self, ctx: Context, served: Served, stored: Object, new: Object, *, patches: bool = False
    ) -> Object:
        """Make the status of `new` that of a stored object; `new` keeps nothing else but its resourceVersion."""
        strategy, old = served.strategy, shown_as(served, stored)
        self.check_preconditions(served, new["metadata"], stored, patches=patches)
        restrict(ctx, served, "update", old["metadata"]["name"], new, old)
        fixed = metadata.validate_fixed(new["metadata"], old["metadata"])
        entries = self.entries_after(ctx, served, _of_status(old), _of_status(new), None)
        changed = {**old, "metadata": self._status_metadata(strategy, new["metadata"], old["metadata"])}
        if entries:
            changed["metadata"]["managedFields"] = entries
        _restore(changed, new, "status")
        strategy.prepare_status(changed, old, ctx)
        problems = fixed + strategy.validate_status(changed, old, ctx)
        if problems:
            raise errors.invalid(kind_name(served), old["metadata"]["name"], problems)
        return self.commit(ctx, served, stored, changed)

    @staticmethod
    def _status_metadata(strategy: Strategy, new: Object, old: Object) -> Object:
        if strategy.status_keeps_metadata:
            return dict(old)
        changed = dict(new)
        metadata.restore_fixed(changed, old)
        return changed

    def check_preconditions(self, served: Served, meta: Object, stored: Object, *, patches: bool = False) -> None:
        """The resourceVersion and uid that a new state names must be the current ones. Raises StatusError (409)."""
        current = stored["metadata"]
        name = current["name"]
        version = meta.get("resourceVersion")
        if version and not version.isdecimal():
            raise errors.failure(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version and version.strip("0") and version != current["resourceVersion"]:
            raise errors.stale(resource_name(served), name)
        if not patches and meta.get("uid") and meta["uid"] != current.get("uid"):
            key = served.key(current.get("namespace", ""), name)
            raise uid_conflict(served, key, meta["uid"], current.get("uid", ""))

    def commit(self, ctx: Context, served: Served, stored: Object, new: Object) -> Object:
        """Write `new` (in the version of `served`) unless nothing changed; remove it if its deletion is finished."""
        old_meta = stored["metadata"]
        new["metadata"]["resourceVersion"] = old_meta["resourceVersion"]
        following = _stored_as(served, new, stored)
        if following == stored:
            return shown_as(served, stored)
        key = served.key(old_meta.get("namespace", ""), old_meta["name"])
        if deletion.is_finished(following, served.strategy):
            if not ctx.dry_run:
                self._remove(ctx, served, key)
            return shown_as(served, following)
        if ctx.dry_run:
            return new
        following = {**following, "metadata": {**following["metadata"]}}
        return shown_as(served, self._put(ctx, served, key, following))

    def delete(self, ctx: Context, served: Served, namespace: str, name: str, options: DeleteOptions) -> Object:
        """Begin or complete a deletion; the object, or a Status when it is gone."""
        stored = self.stored(served, namespace, name)
        served.strategy.admit_delete(stored, ctx)
        restrict(ctx, served, "delete", name, None, stored)
        _check_delete(served, stored["metadata"], options)
        step = deletion.begin(stored, served.strategy, options, ctx)
        key = served.key(namespace, name)
        if step.do == "mark":
            return shown_as(served, step.obj if ctx.dry_run else self._put(ctx, served, key, step.obj))
        if step.do == "keep":
            return shown_as(served, stored)
        if not ctx.dry_run:
            self._remove(ctx, served, key)
        if served.strategy.returns_deleted:
            return shown_as(served, step.obj)
        return errors.success(resource_name(served), name, stored["metadata"].get("uid", ""))

    def delete_collection(
        self, ctx: Context, served: Served, namespace: str, request: ApiRequest, options: DeleteOptions
    ) -> Object:
        """Delete every object that the request's selectors match; a list of them."""
        answer = self.list(ctx, served, namespace, request)
        gone: Objects = []
        for obj in answer["items"]:
            meta = obj["metadata"]
            try:
                self.delete(ctx, served, meta.get("namespace", ""), meta["name"], options)
            except StatusError as error:
                if error.code != 404:
                    raise
                continue
            gone.append(obj)
        return {**answer, "items": gone}

    def _put(self, ctx: Context, served: Served, key: str, obj: Object) -> Object:
        ctx.notes.wrote(served.storage)
        return self.store.put(key, obj)

    def _remove(self, ctx: Context, served: Served, key: str) -> None:
        ctx.notes.wrote(served.storage)
        self.store.delete(key)


def uid_conflict(served: Served, key: str, wanted: str, current: str) -> StatusError:
    """The object has another uid than the client that wants to change it thinks."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry{key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {current}"
    )
    return errors.conflict(resource_name(served), key.rpartition("/")[2], why)


def _settle_namespace(served: Served, meta: Object, namespace: str) -> None:
    given = meta.get("namespace") or ""
    if given and given != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)


def _check_name(meta: Object, name: str) -> None:
    given = meta.get("name") or ""
    if not given:
        raise errors.bad_request("the name of the object (based on URL) was undeterminable: name must be provided")
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def _require_version(served: Served, meta: Object) -> None:
    if served.strategy.needs_version_on_update and not meta.get("resourceVersion"):
        why = FieldError(
            "FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update"
        )
        raise errors.invalid(resource_name(served), meta["name"], [why])


def _of_status(obj: Object) -> Object:
    """The part of an object that a write of its status is about."""
    return {key: obj[key] for key in ("metadata", "status") if key in obj}


def _decode_patched(ctx: Context, served: Served, value: JSON, patch: Patch) -> Object:
    try:
        new, unknown = ctx.types.decode(served.resource, value)
    except WrongValue as error:
        raise _bad_patch(as_merged(value, patch), error.message(served.resource.kind)) from error
    if unknown:
        texts = [f'unknown field "{path}"' for path in unknown]
        if ctx.field_validation == "Strict":
            raise _bad_patch(as_merged(value, patch), f"strict decoding error: {', '.join(texts)}")
        if ctx.field_validation == "Warn":
            for text in texts:
                ctx.warn(text)
    return new


def _bad_patch(value: JSON, why: str) -> StatusError:
    return errors.invalid(Qualified("", ""), "", [invalid_value("patch", dumps(value).decode(), why)])


def _check_applied(config: Object) -> None:
    """What is applied says what it is. Raises StatusError (400)."""
    version, kind = config.get("apiVersion") or "", config.get("kind") or ""
    if not version or not kind:
        group, _, rest = version.rpartition("/") if isinstance(version, str) else ("", "", "")
        raise errors.bad_request(f"invalid object type: {group}/{rest}, Kind={kind}")


def _check_patched(served: Served, new: JSON, name: str, old: Object | None) -> None:
    """A patch must leave an object of the same kind and name. Raises StatusError (400, 422)."""
    if not isinstance(new, dict):
        raise _bad_patch(new, f"couldn't get version/kind; json parse error: {GO_NAMES[type(new)]} is no object")
    try:
        check_type(new, served.resource.api_version, served.resource.kind)
    except StatusError as error:
        raise _bad_patch(new, str(error)) from error
    meta = new.get("metadata") or {}
    if not isinstance(meta, dict):
        return  # the decoder says what is wrong
    given = meta.get("name")
    if not given:
        why = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(why)
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    if old is not None and meta.get("namespace") and meta["namespace"] != old["metadata"].get("namespace"):
        why = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(why)


def _check_delete(served: Served, meta: Object, options: DeleteOptions) -> None:
    if options.uid is not None and options.uid != meta.get("uid"):
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta.get('uid')}). The "
            "object might have been deleted and then recreated"
        )
        raise errors.conflict(kind_name(served), meta["name"], why)
    if options.resource_version is not None and options.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(kind_name(served), meta["name"], why)


def _restore(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _differs(new: Object, old: Object) -> bool:
    """Whether more than metadata differs; where the status is written apart, it is the old one here."""
    keys = (new.keys() | old.keys()) - {"metadata", "apiVersion", "kind"}
    return any(new.get(key) != old.get(key) for key in sorted(keys))
