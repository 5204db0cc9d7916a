// Trains a small routed model on a text made on the spot, and shows where its tokens went.
#include <cstdio>
#include <string>

#include "models/evaluate.h"
#include "models/trainer.h"

int main() {
  // Records that name a number once and need it again a line later.
  sluice::TextData text;
  text.path = "made on the spot";
  for (int i = 0; i < 2000; ++i) {
    const std::string number = std::to_string(i * 7919 % 10007);
    const std::string record = "Package: p" + number + "\nFilename: pool/p" + number + ".deb\n\n";
    text.bytes.insert(text.bytes.end(), record.begin(), record.end());
  }
  text.held_out_begin = static_cast<int64_t>(text.bytes.size()) * 9 / 10;

  sluice::RunConfig config;
  config.model.layers = 2;
  config.model.width = 32;
  config.model.heads = config.model.kv_heads = 2;
  config.model.feed_forward = 64;
  config.model.context = 128;
  config.model.window = 8;
  config.train.steps = 40;
  config.train.tokens = 128;
  config.train.warmup = 5;

  sluice::Trainer trainer(config, text);
  while (!trainer.finished()) {
    const sluice::StepReport report = trainer.step();
    if (report.step % 10 == 0) {
      std::printf("step %2d  loss %.3f nats/byte\n", int(report.step), report.loss);
    }
  }

  const sluice::Evaluation hard = sluice::evaluate(
      trainer.model(),
      trainer.text().held_out(),
      {.mode = sluice::RouteMode::hard, .tokens = 128, .value_fields = {"Filename: "}});
  std::printf("held out: %.3f nats/byte, %.3f on values\n", hard.loss, hard.value_loss);
  for (const sluice::LayerShares& layer : hard.layers) {
    std::printf(
        "full %.0f %%  linear %.0f %%  window %.0f %%\n",
        100 * layer.all[0],
        100 * layer.all[1],
        100 * layer.all[2]);
  }
  return hard.loss < 5.0 ? 0 : 1;  // an untrained model stands at ln 256 = 5.5
}
