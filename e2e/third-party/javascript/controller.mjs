// An informer of ConfigMaps with @kubernetes/client-node that labels each one it sees.
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const namespace = process.argv[2];
const core = config.makeApiClient(k8s.CoreV1Api);
const list = () => core.listNamespacedConfigMap({ namespace });
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list);

const label = async (map) => {
  if (map.metadata.labels?.seen === 'yes') return;
  const body = [{ op: 'add', path: '/metadata/labels', value: { ...map.metadata.labels, seen: 'yes' } }];
  await core.patchNamespacedConfigMap({ name: map.metadata.name, namespace, body });
  console.log(`labelled ${map.metadata.name}`);
};
informer.on('add', label);
informer.on('update', label);
informer.on('error', (error) => { console.error(error); process.exit(1); });
await informer.start();
