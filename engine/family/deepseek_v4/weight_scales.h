// The constants behind the synthetic weights, in one place so that they can be tuned. Reasons for
// the values: weights.cpp.
#pragma once

namespace attnscope {

struct WeightScales {
  double norm_spread = 0.1;     // norm weights: gain * (1 + N(0, spread^2))
  double latent_gain = 2.5;     // rms of latent rows: spread of the attention logits
  double index_gain = 1.0;      // rms of index keys
  double gate_gain_c4 = 1.0;    // standard deviation of the compressor gates, 8 rows a window
  double gate_gain_c128 = 1.5;  // the same over 128 rows
  double ape_spread = 0.5;      // ape: uniform in +- this
  double embedding_gain = 0.5;  // embedding: N(0, gain^2 / hidden)
  double output_gain = 2.0;     // wo_b: N(0, gain^2 / fan_in)
  // Sinks: strata of sink - lse over the heads of a layer; mass = 1 / (1 + e^(lse - sink)). lse is
  // taken as ln n + lse_share * latent_gain^2 for n rows.
  double sink_low = -4.6;  // mass 0.01
  double sink_high = 2.2;  // mass 0.9
  double lse_share = 0.25;
  double c128_entries_typical = 16;  // compressed entries assumed for C128A layers
};

}  // namespace attnscope
