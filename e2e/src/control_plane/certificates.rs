//! A certificate authority for one control plane, stored only in its temporary folder.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::network::SERVICE;

/// The files for the programs of a control plane.
#[derive(Debug)]
pub(super) struct Certificates {
    /// The authority's certificate, which every client trusts.
    pub(super) authority: PathBuf,
    /// The same as PEM text, to be written into kubeconfigs.
    pub(super) authority_pem: String,
    /// The API server's certificate, for 127.0.0.1, localhost and the address of its Service.
    pub(super) server: PathBuf,
    /// The key of [`Certificates::server`].
    pub(super) server_key: PathBuf,
    /// The key that signs ServiceAccount tokens.
    pub(super) service_account_key: PathBuf,
    /// The key that verifies them.
    pub(super) service_account_public_key: PathBuf,
}

impl Certificates {
    /// Creates an authority, a serving certificate and a signing key in `dir`.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let authority_key = KeyPair::generate()?;
        let authority_params = authority_params();
        let authority = authority_params.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority_params, authority_key);

        let server_key = KeyPair::generate()?;
        let server = server_params()?.signed_by(&server_key, &issuer)?;
        let service_account_key = KeyPair::generate()?;

        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            authority: write("ca.crt", &authority.pem())?,
            authority_pem: authority.pem(),
            server: write("apiserver.crt", &server.pem())?,
            server_key: write("apiserver.key", &server_key.serialize_pem())?,
            service_account_key: write("sa.key", &service_account_key.serialize_pem())?,
            service_account_public_key: write("sa.pub", &service_account_key.public_key_pem())?,
        })
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "belayer-e2e");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn server_params() -> Result<CertificateParams> {
    let names = ["localhost", "kubernetes.default.svc"];
    let mut params = CertificateParams::new(names.map(String::from).to_vec())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    for address in [Ipv4Addr::LOCALHOST, SERVICE] {
        let name = SanType::IpAddress(IpAddr::V4(address));
        params.subject_alt_names.push(name);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_pem() {
        let dir = tempfile::tempdir().unwrap();
        let made = Certificates::create(dir.path()).unwrap();
        for file in [
            &made.authority,
            &made.server,
            &made.server_key,
            &made.service_account_key,
        ] {
            assert!(fs::read_to_string(file).unwrap().starts_with("-----BEGIN "));
        }
    }
}
