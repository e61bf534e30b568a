//! Rules for the names of objects and of their parts.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LETTER_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    lower(*first) && lower(*last) && bytes.iter().all(|b| lower(*b) || *b == b'-')
}

/// Why `text` is not a DNS subdomain.
pub(crate) fn subdomain(text: &str) -> Option<&'static str> {
    if text.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    (!text.split('.').all(dns_label)).then_some(SUBDOMAIN)
}

/// Why `text` is not a DNS label that begins with a letter.
pub(crate) fn letter_label(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters");
    }
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
    (!begins || !dns_label(text)).then_some(LETTER_LABEL)
}

/// Why `text` is not a DNS label.
pub(crate) fn label_name(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters");
    }
    if text.contains('.') {
        return Some("must not contain dots");
    }
    (!dns_label(text)).then_some(LABEL)
}
