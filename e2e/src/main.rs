//! x
use belayer_e2e::control_plane::*;
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let b = Binaries::find_or_build()?;
    let t = std::time::Instant::now();
    let mut p = ControlPlane::start(&b, &Options::default()).await?;
    p.keep_files();
    println!("up {:?} {}", t.elapsed(), p.admin_path().display());
    tokio::time::sleep(std::time::Duration::from_secs(std::env::args().nth(1).unwrap().parse()?)).await;
    p.stop().await
}
