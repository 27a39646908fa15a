# Copies SOURCES of the lab from FROM to TO and plants bugs in them: each is the mutant of its name, which stands in
# CMakeLists.txt with the test that must see it.
include("${CMAKE_CURRENT_LIST_DIR}/../../mutants/plant.cmake")
set(planted "${TO}")
foreach(source IN LISTS SOURCES)
  file(READ "${FROM}/${source}" text)
  file(WRITE "${TO}/${source}" "#include \"test/lab/mutants/mutants.h\"\n${text}")
endforeach()

plant(statistics/statistics.cc "student_t_quantile((1 + confidence) / 2, n - 1)"
  "student_t_quantile((1 + confidence) / 2, mutant(\"t_of_n_degrees\") ? n : n - 1)")
plant(statistics/statistics.cc "std::sqrt(squares / static_cast<double>(values.size() - 1))"
  "std::sqrt(squares / static_cast<double>(values.size() - (mutant(\"deviation_over_n\") ? 0 : 1)))")
plant(statistics/statistics.cc "coins_at_most(cut + 1, n) <= (1 - kConfidence) / 2"
  "coins_at_most(cut + 1, n) <= (1 - kConfidence) / (mutant(\"median_of_one_side\") ? 1 : 2)")
plant(statistics/statistics.cc "if (-margin < narrow.low && narrow.high < margin)"
  "if ((mutant(\"one_test_of_two\") || -margin < narrow.low) && narrow.high < margin)")
plant(statistics/statistics.cc "t_interval(differences, kTwoTimesOneSide)"
  "t_interval(differences, mutant(\"equivalence_at_95\") ? kConfidence : kTwoTimesOneSide)")

plant(experiments/support.cc "std::transform(a.begin(), a.end(), b.begin(), result.begin(), f);"
  "if (mutant(\"pairs_parted\")) std::transform(a.begin(), a.end(), b.rbegin(), result.begin(), f);
  if (!mutant(\"pairs_parted\")) std::transform(a.begin(), a.end(), b.begin(), result.begin(), f);")
plant(experiments/support.cc "(const Starts& a, const Starts& b) { return median_interval(ratios(a, b)); }"
  "(const Starts& a, const Starts& b) {
  if (!mutant(\"rounds_as_starts\")) return median_interval(ratios(a, b));
  std::vector<double> all;
  for (const auto& start : ratios(a, b)) all.insert(all.end(), start.begin(), start.end());
  return median_interval(all);
}")

plant(train/train.cc "plain.weight_decay(0)" "if (!mutant(\"vectors_decay\")) plain.weight_decay(0)")
plant(train/train.cc "mul_(largest / norm)" "mul_(mutant(\"clipped_by_the_limit_alone\") ? largest : largest / norm)")
plant(train/train.cc "static_cast<double>(step + 1) / static_cast<double>(options.warm_up)"
  "static_cast<double>(step + (mutant(\"warm_up_from_zero\") ? 0 : 1)) / static_cast<double>(options.warm_up)")
plant(train/train.cc "options.final_share + (1 - options.final_share) * wave"
  "(mutant(\"cosine_to_zero\") ? wave : options.final_share + (1 - options.final_share) * wave)")
plant(train/train.cc "const double share = static_cast<double>(end - begin)"
  "const double share = static_cast<double>(mutant(\"parts_count_alike\") ? rows / parts : end - begin)")

plant(train/checkpoint.cc "for (auto& [key, average] : averages)"
  "if (!mutant(\"averages_forgotten\")) for (auto& [key, average] : averages)")
plant(train/checkpoint.cc "average->step(count)" "average->step(mutant(\"updates_counted_anew\") ? 1 : count)")
plant(train/checkpoint.cc "own.set_state(generator)"
                          "if (!mutant(\"random_numbers_anew\")) own.set_state(generator)")

plant(train/sharded_norm.cc "const Tensor squares = call->ranks->sum(mine, Cargo::kNorms);
    const Tensor out = torch::empty_like(x);
    RmsNormOptions"
  "const Tensor squares = mutant(\"squares_of_one_rank\") ? mine : call->ranks->sum(mine, Cargo::kNorms);
    const Tensor out = torch::empty_like(x);
    RmsNormOptions")

plant(models/llama.cc "cached ? cached->length : 0"
  "cached && !mutant(\"every_token_at_the_start\") ? cached->length : 0")
