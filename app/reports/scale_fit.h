// A straight line through measured points, by least squares.
#pragma once

#include <optional>
#include <span>

namespace attnscope {

struct LinearFit {
  double slope = 0;      // units of y per unit of x
  double intercept = 0;  // units of y
  // Standard error of the slope; none with fewer than three points, which a line always meets.
  std::optional<double> slope_error;
  // Share of the variance that the line explains; none where no y differs from another.
  std::optional<double> r2;
  double spread = 1;  // largest y / smallest y

  // Whether the slope is told from none, by two standard errors; r2 says nothing where it is not.
  bool meaningful() const;
};

// x and y: as many of each, at least two, not all x equal, y > 0.
LinearFit fit_line(std::span<const double> x, std::span<const double> y);

}  // namespace attnscope
