//! Plans and builds the image of `./Dockerfile`, and shows its status: `cargo run --example image`
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

use ralph::agent::actions::ACTIONS;
use ralph::assembly::Surroundings;
use ralph::exec::Discard;
use ralph::image::{BuildSource, ImageRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let images = Surroundings::from_process()?.image_builder().await?;
    let mut request = ImageRequest::for_project(".", ACTIONS.image);
    request.source = BuildSource::Dockerfile("./Dockerfile".into());
    let recipe = images.read(&request).await?;
    print!("{}", images.plan(&recipe).await?);
    let built = images.ensure(&recipe, &mut Discard).await?;
    println!("done: {}", built.done.len());
    println!("{:?}", images.status(&recipe).await?.state);
    Ok(())
}
