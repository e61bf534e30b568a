"""A kopf operator: a ConfigMap per EphemeralVolumeClaim, kept by an owner reference and a finalizer."""

import kopf
import kubernetes_asyncio


@kopf.on.startup()
async def start(**_):
    await kubernetes_asyncio.config.load_kube_config()


@kopf.on.create("ephemeralvolumeclaims")
async def create(spec, name, namespace, **_):
    body = {"metadata": {"name": name}, "data": {"size": spec["size"]}}
    kopf.adopt(body)
    async with kubernetes_asyncio.client.ApiClient() as api:
        core = kubernetes_asyncio.client.CoreV1Api(api)
        made = await core.create_namespaced_config_map(namespace, body)
    return {"configmap": made.metadata.name}


@kopf.on.update("ephemeralvolumeclaims", field="spec.size")
async def update(new, name, namespace, **_):
    async with kubernetes_asyncio.client.ApiClient() as api:
        core = kubernetes_asyncio.client.CoreV1Api(api)
        await core.patch_namespaced_config_map(name, namespace, {"data": {"size": new}})


@kopf.on.delete("ephemeralvolumeclaims")
async def delete(name, logger, **_):
    logger.info("deleted %s", name)
