//! The namespace in whose turn a request waits for a token.

use std::sync::Arc;

use crate::http::Request;
use crate::object::path;

tokio::task_local! {
    static NAMESPACE: Arc<str>;
}

/// Runs live reads for objects of `namespace`: each of their requests that has to wait for a token
/// waits in the turn of that namespace, whatever it reads.
pub(crate) fn on_behalf_of<F: Future>(
    namespace: Arc<str>,
    reads: F,
) -> impl Future<Output = F::Output> {
    NAMESPACE.scope(namespace, reads)
}

/// The namespace for which a request is sent; outside of [`on_behalf_of`] the namespace in its
/// path. Requests without a namespace use the empty name.
pub(super) fn of(request: &Request) -> Arc<str> {
    let of_its_object = |_| path::namespace(request.path()).unwrap_or_default().into();
    NAMESPACE.try_with(Arc::clone).unwrap_or_else(of_its_object)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::an_object("/api/v1/namespaces/shop/pods/web-0", "shop")]
    #[case::of_another_group("/apis/argoproj.io/v1alpha1/namespaces/ci/workflows/w", "ci")]
    #[case::a_collection("/apis/events.k8s.io/v1/namespaces/ci/events", "ci")]
    #[case::the_namespace_itself("/api/v1/namespaces/shop", "shop")]
    #[case::all_namespaces("/api/v1/namespaces", "")]
    #[case::of_no_namespace("/api/v1/nodes/namespaces", "")]
    #[case::a_group_of_that_name("/apis/namespaces/v1/things/a", "")]
    #[case::no_object("/version", "")]
    #[tokio::test]
    async fn l1_a_request_waits_in_the_turn_of_a_namespace(
        #[case] path: &str,
        #[case] its_own: &str,
    ) {
        let request = Request::get(path);
        assert_eq!(&*of(&request), its_own);
        let of_waiter = on_behalf_of("waiter".into(), async { of(&request) }).await;
        assert_eq!(&*of_waiter, "waiter");
    }
}
