// The formulas of the papers give what the simulation gives, wherever they claim to hold.

#include "parallel/schedule/idle_formula.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/schedule/generators.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {
namespace {

bool is_legal(const std::string& name, int p, int m, int v) {
  const bool is_grouped = v > 1 && (name == "interleaved" || name == "foldx_fifo");
  return !(name == "zb-h1" && m < p) && !(is_grouped && (m < p || (m % p != 0 && m % p < p)));
}

double simulated(const std::string& name, int p, int m, int v) {
  return simulate(lower(make_schedule(name, p, m, v)), Costs::uniform(p * v, 1, 1, 1)).idle;
}

TEST(IdleFormula, EqualsTheSimulationWhereItHolds) {
  int held = 0;
  for (const std::string& name : schedule_names()) {
    const bool takes_chunks = name == "interleaved" || name.rfind("foldx", 0) == 0;
    for (int v = 1; v <= (takes_chunks ? 4 : 1); ++v) {
      for (int p = 1; p <= 8; ++p) {
        for (int m = 1; m <= 24; ++m) {
          const auto formula = idle_formula(name, p, m, v);
          ASSERT_TRUE(formula) << name;
          if (is_legal(name, p, m, v) && formula->share) {
            ++held;
            ASSERT_NEAR(*formula->share, simulated(name, p, m, v), 1e-12)
                << fmt::format("{}: p = {}, m = {}, v = {}", name, p, m, v);
          }
        }
      }
    }
  }
  EXPECT_GT(held, 2000);
}

TEST(IdleFormula, GivesNoShareOutsideOfItsDomain) {
  const auto formula = idle_formula("foldx_aiao", 4, 2, 2);
  EXPECT_FALSE(formula->share);
  EXPECT_EQ(formula->domain, "m >= p");
  EXPECT_GT(simulated("foldx_aiao", 4, 2, 2), 3.0 / 7 + 0.1) << "what the formula would say";
  EXPECT_FALSE(idle_formula("my_table.csv", 4, 2, 2));
}

}  // namespace
}  // namespace stagecoach
