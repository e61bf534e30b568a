use super::{Request, RequestError};

/// How far a collection has been read in pages.
///
/// A page that is too large is requested again with half as many objects, and so are the pages after it.
///
/// ```no_run
/// use belayer_core::http::{Pages, RequestError};
///
/// # async fn read(client: kube::Client) -> Result<(), RequestError> {
/// let mut pages = Pages::of(500);
/// loop {
///     let answer = match pages.request("/api/v1/pods").send(&client).await {
///         Err(error) if pages.halve(&error) => continue,
///         answer => answer?,
///     };
///     let list: serde_json::Value = answer.json()?;
///     let token = list["metadata"]["continue"].as_str();
///     if !pages.turn(token.map(str::to_owned))? {
///         return Ok(());
///     }
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    limit: u32,
    token: Option<String>,
}

impl Pages {
    /// Starts with the first page of `limit` objects.
    pub fn of(limit: u32) -> Self {
        Self { limit, token: None }
    }

    /// The request of the current page of the collection at this path.
    pub fn request(&self, path: impl Into<String>) -> Request {
        Request::list(path, self.limit, self.token.as_deref())
    }

    /// Whether this is the first page.
    pub fn is_first(&self) -> bool {
        self.token.is_none()
    }

    /// After an error of a page: whether it was too large and is to be requested again, with half as many objects.
    pub fn halve(&mut self, error: &RequestError) -> bool {
        let again = matches!(error, RequestError::TooLarge { .. }) && self.limit > 1;
        if again {
            self.limit /= 2;
        }
        again
    }

    /// Turns to the page of the token that the current page names. `false` if this was the last page: it names none, or an
    /// empty one.
    ///
    /// # Errors
    /// If the server repeats a token: the list would never end.
    pub fn turn(&mut self, token: Option<String>) -> Result<bool, RequestError> {
        let token = token.filter(|token| !token.is_empty());
        if token.is_some() && token == self.token {
            let why = "the server repeats a continue token";
            return Err(RequestError::Decode(why.to_owned()));
        }
        self.token = token;
        Ok(self.token.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_large() -> RequestError {
        RequestError::TooLarge { limit: 9 }
    }

    #[test]
    fn pages_after_one_that_was_too_large_are_as_small() {
        let mut pages = Pages::of(4);
        assert!(pages.halve(&too_large()));
        assert!(pages.turn(Some("more".to_owned())).unwrap());
        assert_eq!(pages.limit, 2);
        assert!(pages.halve(&too_large()));
        assert!(!pages.halve(&too_large()), "a page of one object");
        assert!(!Pages::of(4).halve(&RequestError::Decode("no JSON".to_owned())));
    }

    #[test]
    fn a_list_ends_with_the_page_without_a_token() {
        let mut pages = Pages::of(4);
        assert!(pages.is_first());
        assert!(pages.turn(Some("a".to_owned())).unwrap());
        assert!(!pages.is_first());
        pages.turn(Some("a".to_owned())).unwrap_err();
        assert!(pages.turn(Some("b".to_owned())).unwrap());
        assert!(!pages.turn(Some(String::new())).unwrap());
    }
}
