//! The token of a file, read as client-go reads it: without the white space around it, again every minute, and in
//! preference to a `token`. kube sends the file as it is, so that a line break at its end makes every request fail.

use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kube::Error;
use kube::client::AuthError;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A token is not used longer than a minute.
const READ_EVERY: Duration = Duration::from_secs(50);

/// The token of a file, if there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenFile(Option<Arc<(PathBuf, Mutex<Read>)>>);

/// The header of the token that was read last.
#[derive(Debug)]
struct Read {
    header: HeaderValue,
    at: Instant,
}

impl TokenFile {
    /// Takes the file out of the credentials, so that kube does not read it. As in kube, `auth-provider` and a user with a
    /// password take precedence over it.
    pub(super) fn take(auth: &mut AuthInfo) -> Result<Self, Error> {
        let has_password = auth.username.is_some() && auth.password.is_some();
        if auth.auth_provider.is_some() || has_password {
            return Ok(Self(None));
        }
        let Some(path) = auth.token_file.take().filter(|path| !path.is_empty()) else {
            return Ok(Self(None));
        };
        let path = PathBuf::from(path);
        let unread = |error| Error::Auth(AuthError::ReadTokenFile(error, path.clone()));
        let header = read(&path).map_err(unread)?;
        (auth.token, auth.exec) = (None, None);
        let at = Instant::now();
        Ok(Self(Some(Arc::new((
            path,
            Mutex::new(Read { header, at }),
        )))))
    }

    /// The header `Authorization` of a request that is sent now.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let (path, last) = &**self.0.as_ref()?;
        let mut last = last.lock();
        if last.at.elapsed() >= READ_EVERY {
            last.at = Instant::now();
            // As in client-go: without a new token the last one is used.
            if let Ok(header) = read(path) {
                last.header = header;
            }
        }
        Some(last.header.clone())
    }
}

fn read(path: &Path) -> Result<HeaderValue, IoError> {
    let text = std::fs::read_to_string(path)?;
    let invalid = |message| IoError::new(ErrorKind::InvalidData, message);
    let token = match text.trim() {
        "" => return Err(invalid("it is empty")),
        token => format!("Bearer {token}"),
    };
    let mut header =
        HeaderValue::try_from(token).map_err(|_| invalid("it is not one line of plain text"))?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use kube::config::AuthInfo;

    use super::*;

    fn auth(path: &Path) -> AuthInfo {
        AuthInfo {
            token: Some("inline".to_owned().into()),
            token_file: Some(path.display().to_string()),
            ..AuthInfo::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_file_is_trimmed_read_again_and_preferred_to_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "first\n").unwrap();
        let mut auth = auth(&path);
        let token = TokenFile::take(&mut auth).unwrap();
        assert!(auth.token.is_none() && auth.token_file.is_none());
        let sent = || token.header().unwrap().to_str().unwrap().to_owned();
        assert_eq!(sent(), "Bearer first");
        std::fs::write(&path, " second\r\n").unwrap();
        assert_eq!(sent(), "Bearer first");
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(sent(), "Bearer second");
        // Some programs delete the file after the start.
        for useless in ["", "two\nlines"] {
            std::fs::write(&path, useless).unwrap();
            tokio::time::advance(READ_EVERY).await;
            assert_eq!(sent(), "Bearer second");
        }
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(READ_EVERY).await;
        assert_eq!(sent(), "Bearer second");
    }

    #[test]
    fn a_file_without_a_token_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for useless in ["\n", "two\nlines"] {
            std::fs::write(&path, useless).unwrap();
            let error = TokenFile::take(&mut auth(&path)).unwrap_err();
            let is_named =
                matches!(&error, Error::Auth(AuthError::ReadTokenFile(_, named)) if *named == path);
            assert!(is_named, "{error}");
        }
    }

    #[test]
    fn without_a_file_kube_authenticates() {
        let mut auth = AuthInfo {
            token: Some("inline".to_owned().into()),
            ..AuthInfo::default()
        };
        assert!(TokenFile::take(&mut auth).unwrap().header().is_none());
        assert!(auth.token.is_some());
    }
}
