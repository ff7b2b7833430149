# ruff: noqa: E501 (a tree is one line)
"""The phrasebook's trees: their words are the sentence, their labels and attachment Penn's."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, islice

import pytest

from phrasebook import Pair, generate, nominals, penn, phrases, sampling
from phrasebook.grammar import Sentence
from phrasebook.lexicon import load
from phrasebook.phrases import Clause
from seq2sweep.data.treebank.trees import Tree, clean, parse_tree

LEXICON = load()
SPLITS = ("train", "valid", "test")

# --- Expected trees -------------------------------------------------------------------------------

# construction | tree: one at least of each construction.
EXPECTED = """
after_clause|(TOP (S (SBAR (IN After) (S (NP (PRP she)) (VP (VBD had) (VP (VBN taken) (NP (DT a) (NN shower)))))) (, ,) (NP (PRP she)) (VP (VBD planted) (NP (DT a) (NN sunflower))) (. .)))
after_clause|(TOP (S (SBAR (IN After) (S (NP (PRP$ her) (NN nephew)) (VP (VBD had) (VP (VBN got) (VP (VBN dressed)))))) (, ,) (NP (PRP he)) (VP (VBD repaired) (NP (DT the) (NN watch))) (. .)))
although_clause|(TOP (S (NP (NNP Philipp)) (VP (VBZ is) (VP (VBG talking) (PP (TO to) (NP (DT a) (NN child))) (SBAR (IN although) (S (NP (PRP he)) (VP (VBZ has) (NP (DT a) (NN cold))))))) (. .)))
although_clause|(TOP (S (NP (PRP$ Our) (NN teacher)) (VP (VBZ is) (VP (VBG singing) (SBAR (IN although) (S (NP (PRP he)) (VP (VBZ has) (NP (NP (DT a) (NN lot)) (PP (IN of) (NP (NN work))))))))) (. .)))
although_weather|(TOP (S (SBAR (IN Although) (S (NP (PRP it)) (VP (VBZ is) (ADJP (RB very) (JJ cold))))) (, ,) (NP (NNP Lena)) (VP (VBZ is) (VP (VBG reading) (NP (DT an) (NN email)) (PP (IN in) (NP (DT the) (NN park))))) (. .)))
because_clause|(TOP (S (NP (PRP They)) (VP (MD can) (RB not) (VP (VB sew) (NP (DT the) (NN skirt)) (SBAR (IN because) (S (NP (PRP they)) (VP (VBP have) (NP (DT a) (JJ bad) (NN cold))))))) (. .)))
because_clause|(TOP (S (NP (PRP They)) (VP (VBP do) (RB not) (VP (VB want) (S (VP (TO to) (VP (VB sing)))) (SBAR (IN because) (S (NP (PRP they)) (VP (VBP have) (NP (NP (DT a) (NN lot)) (PP (IN of) (NP (NN work))))))))) (. .)))
because_it|(TOP (S (NP (NNP Nina)) (VP (VBD bought) (NP (DT a) (NN coat)) (NP (JJ last) (NN summer)) (SBAR (IN because) (S (NP (PRP it)) (VP (VBZ is) (ADJP (RB very) (JJ warm)))))) (. .)))
before_clause|(TOP (S (SBAR (IN Before) (S (NP (PRP$ his) (NN daughter)) (VP (VBD took) (NP (DT a) (NN shower))))) (, ,) (NP (PRP she)) (VP (VBD read) (NP (DT the) (NN message))) (. .)))
but_it|(TOP (S (S (NP (NNP Daniel)) (VP (VBD bought) (NP (DT a) (NN peach)) (NP (JJ last) (NN year)))) (, ,) (CC but) (S (NP (PRP it)) (VP (VBZ is) (ADJP (RB too) (JJ big)))) (. .)))
comparison_equal|(TOP (S (NP (DT This) (NN wine)) (VP (VBZ is) (ADJP (ADJP (RB as) (JJ sweet)) (PP (IN as) (NP (DT this) (NN lemonade))))) (. .)))
comparison_less|(TOP (S (NP (DT The) (NN supermarket)) (VP (VBZ is) (RB not) (ADJP (ADJP (RB as) (JJ big)) (PP (IN as) (NP (DT the) (NN museum))))) (. .)))
comparison|(TOP (S (NP (DT The) (NN blouse)) (VP (VBZ is) (ADJP (ADJP (RBR more) (JJ beautiful)) (PP (IN than) (NP (DT the) (NN suit))))) (. .)))
comparison|(TOP (S (NP (DT The) (NN ring)) (VP (VBZ is) (ADJP (ADJP (RBR more) (JJ valuable)) (PP (IN than) (NP (DT the) (NN coin))))) (. .)))
description_negated|(TOP (S (NP (DT This) (NN field)) (VP (VBZ is) (RB not) (ADJP (RB very) (JJ small))) (. .)))
description_past|(TOP (S (NP (PRP$ Our) (NN doctor)) (VP (VBD was) (ADJP (RB very) (JJ friendly)) (NP (NN yesterday))) (. .)))
description_question|(TOP (SQ (VBZ Is) (NP (PRP$ our) (NN guest)) (ADJP (RB quite) (JJ nervous)) (. ?)))
description|(TOP (S (NP (PRP$ Your) (NN bicycle)) (VP (VBZ is) (ADJP (RB really) (JJ new))) (. .)))
do_you_know|(TOP (SQ (VBP Do) (NP (PRP you)) (VP (VB know) (SBAR (IN whether) (S (NP (PRP$ my) (NN dentist)) (VP (VBD fried) (NP (DT an) (NN egg)) (PP (IN in) (NP (DT the) (NN kitchen))))))) (. ?)))
existence|(TOP (S (PP (IN In) (NP (DT the) (NN city))) (NP (EX there)) (VP (VBP are) (NP (CD seven) (JJ new) (NNS museums))) (. .)))
fronted_because|(TOP (S (SBAR (IN Because) (S (NP (PRP she)) (VP (VBZ has) (NP (JJ little) (NN time))))) (, ,) (NP (PRP she)) (VP (VBZ does) (RB not) (VP (VB want) (S (VP (TO to) (VP (VB tidy) (PRT (RP up)) (NP (DT the) (NN living) (NN room))))))) (. .)))
fronted_because|(TOP (S (SBAR (IN Because) (S (NP (PRP you)) (VP (VBP are) (PP (IN in) (NP (DT a) (NN hurry)))))) (, ,) (NP (PRP you)) (VP (VBP do) (RB not) (VP (VB want) (S (VP (TO to) (VP (VB wash) (NP (DT the) (NN sweater))))))) (. .)))
fronted_time|(TOP (S (NP (JJ Last) (NN week)) (NP (PRP I)) (VP (VBD was) (ADJP (JJ able) (S (VP (TO to) (VP (VB turn) (PRT (RP off)) (NP (PRP$ my) (NN radio))))))) (. .)))
fronted_time|(TOP (S (NP (JJ Last) (NNP Sunday)) (NP (PRP we)) (VP (VBD wanted) (S (VP (TO to) (VP (VB take) (NP (NN care)) (PP (IN of) (NP (PRP$ our) (NN rabbit))))))) (. .)))
fronted_time|(TOP (S (NP (JJ Next) (NN week)) (NP (NNP Laura)) (VP (MD will) (VP (VB eat) (NP (DT the) (NNS vegetables)) (PP (IN in) (NP (DT the) (NN restaurant))))) (. .)))
fronted_time|(TOP (S (PP (IN On) (NP (NNP Tuesday))) (NP (DT the) (NN journalist)) (VP (MD will) (VP (VB turn) (PRT (RP on)) (NP (PRP$ his) (NN printer)))) (. .)))
fronted_time|(TOP (S (PP (IN On) (NP (NNP Wednesday))) (NP (NNP Maria)) (VP (VBD brought) (PRT (RP along)) (NP (DT an) (JJ expensive) (NN present))) (. .)))
genitive_name|(TOP (S (NP (NP (NNP Karin) (POS 's)) (NN backpack)) (VP (VBZ is) (ADJP (RB very) (JJ heavy))) (. .)))
genitive_plural|(TOP (S (NP (NP (DT The) (NNS mechanics) (POS ')) (NN living) (NN room)) (VP (VBZ is) (ADJP (JJ big))) (. .)))
genitive_plural|(TOP (S (NP (NP (DT The) (NNS policemen) (POS 's)) (NN letter)) (VP (VBZ is) (ADJP (JJ short))) (. .)))
genitive|(TOP (S (NP (NP (DT The) (NN waiter) (POS 's)) (NN carpet)) (VP (VBZ is) (ADJP (RB very) (JJ cheap))) (. .)))
having|(TOP (S (NP (NNP Oliver)) (VP (VBZ does) (RB not) (VP (VB have) (NP (NP (DT a) (NN chest)) (PP (IN of) (NP (NNS drawers)))))) (. .)))
having|(TOP (SQ (VBZ Does) (NP (NNP Philipp)) (VP (VB have) (NP (DT a) (JJ new) (NN teacher))) (. ?)))
if_clause|(TOP (S (SBAR (IN If) (S (NP (DT the) (NN baker)) (VP (VBZ has) (NP (DT the) (NN day)) (ADVP (RB off))))) (, ,) (NP (PRP he)) (VP (MD will) (VP (VB visit) (NP (DT the) (NN zoo)))) (. .)))
if_clause|(TOP (S (SBAR (IN If) (S (NP (PRP I)) (VP (VBP am) (ADJP (JJ well)) (ADVP (RB again))))) (, ,) (NP (PRP I)) (VP (MD will) (VP (VB feed) (NP (CD two) (NNS pigs)))) (. .)))
if_clause|(TOP (S (SBAR (IN If) (S (NP (PRP you)) (VP (VBP are) (RB not) (ADJP (RB too) (JJ tired))))) (, ,) (NP (PRP you)) (VP (MD will) (VP (VB draw) (NP (CD four) (NNS plans)))) (. .)))
if_weather|(TOP (S (NP (NNP Martha)) (VP (MD will) (VP (VB read) (NP (DT a) (JJ good) (NN poem)) (PP (IN on) (NP (DT the) (NN beach))) (SBAR (IN if) (S (NP (PRP it)) (VP (VBZ is) (RB not) (ADJP (RB too) (JJ cold))))))) (. .)))
impersonal_infinitive|(TOP (S (NP (PRP It)) (VP (VBZ is) (ADJP (RB too) (JJ late) (S (VP (TO to) (VP (VB sing) (NP (DT the) (NN song))))))) (. .)))
impersonal_infinitive|(TOP (S (NP (PRP It)) (VP (VBZ is) (NP (NP (NN time)) (SBAR (S (VP (TO to) (VP (VB apologise) (PP (TO to) (NP (DT the) (NNS waiters))))))))) (. .)))
impersonal_infinitive|(TOP (S (NP (PRP It)) (VP (VBZ is) (NP (NP (NN time)) (SBAR (S (VP (TO to) (VP (VB bring) (NP (DT the) (NN patient)) (NP (DT the) (NNS towels)))))))) (. .)))
impersonal_that|(TOP (S (NP (NN Everybody)) (VP (VBZ knows) (SBAR (IN that) (S (NP (PRP they)) (VP (VBP remember) (NP (DT the) (NN painter)))))) (. .)))
impersonal_that|(TOP (S (NP (PRP It)) (VP (VBZ is) (ADJP (JJ possible)) (SBAR (IN that) (S (NP (PRP$ my) (NN uncle)) (VP (VBD ate) (NP (DT a) (NN roll)) (PP (IN in) (NP (DT the) (NN kitchen))))))) (. .)))
know_relative|(TOP (SQ (VBP Do) (NP (PRP you)) (VP (VB know) (NP (NP (DT the) (NN policeman)) (SBAR (WHNP (WP who)) (S (VP (VBD arrested) (NP (DT an) (JJ elegant) (NN woman)) (NP (JJ last) (NNP Sunday))))))) (. ?)))
liking|(TOP (S (NP (DT The) (NN singer)) (VP (VBZ likes) (S (VP (VBG jogging) (PP (IN by) (NP (DT the) (NN river)))))) (. .)))
liking|(TOP (S (NP (NNP Martha) (CC and) (NNP Julia)) (VP (VBP like) (S (VP (VBG hiking) (PP (IN on) (NP (DT the) (NN beach)))))) (. .)))
modal_statement|(TOP (S (NP (NNP Laura)) (VP (MD would) (VP (VB like) (S (VP (TO to) (VP (VB give) (NP (NNP Klaus)) (NP (DT a) (JJ green) (NN hat)) (ADVP (RB now))))))) (. .)))
modal_statement|(TOP (S (NP (PRP I)) (VP (VBD had) (S (VP (TO to) (VP (VB try) (PRT (RP on)) (NP (DT the) (JJ beautiful) (NN sweater)) (ADVP (NP (DT a) (JJ few) (NNS hours)) (RB ago)))))) (. .)))
modal_statement|(TOP (S (NP (PRP You)) (VP (VBD were) (ADJP (JJ able) (S (VP (TO to) (VP (VB prepare) (NP (DT the) (JJ long) (NN lecture)) (NP (JJ last) (NN week))))))) (. .)))
motion|(TOP (S (NP (NNP Jakob) (CC and) (NNP Susanne)) (VP (VBD stood) (PP (IN under) (NP (DT the) (NN tree))) (NP (NN yesterday) (NN morning))) (. .)))
needs_it|(TOP (S (S (NP (PRP$ His) (NN mother)) (VP (VBD looked) (PP (IN for) (NP (DT the) (NN letter))))) (, ,) (CC but) (S (NP (PRP she)) (VP (MD could) (RB not) (VP (VB find) (NP (PRP it))))) (. .)))
negation|(TOP (S (NP (DT The) (NNS lectures)) (VP (VBD did) (RB not) (VP (VB take) (NP (NN place)) (PP (IN in) (NP (DT the) (NN restaurant))))) (. .)))
negation|(TOP (S (NP (NNP Petra)) (VP (VBD did) (RB not) (VP (VB look) (ADVP (RB forward)) (PP (TO to) (NP (DT the) (NN party))) (NP (NN yesterday) (NN morning)))) (. .)))
negation|(TOP (S (NP (PRP He)) (VP (VBZ is) (RB not) (VP (VBN allowed) (S (VP (TO to) (VP (VB lock) (NP (DT any) (NNS drawers))))))) (. .)))
negation|(TOP (S (NP (PRP We)) (VP (VBD did) (RB not) (VP (VB photograph) (NP (DT any) (NNS ships)) (NP (JJ last) (NNP Sunday)))) (. .)))
negation|(TOP (S (NP (PRP We)) (VP (VBP do) (RB not) (VP (VB have) (S (VP (TO to) (VP (VB drink) (NP (DT the) (NN tea))))))) (. .)))
negation|(TOP (S (NP (PRP You)) (VP (VBP do) (RB not) (VP (VB want) (S (VP (TO to) (VP (VB throw) (PRT (RP away)) (NP (DT the) (NN chair))))))) (. .)))
negation|(TOP (S (NP (PRP$ His) (NN grandson)) (VP (VBZ does) (RB not) (VP (VB like) (NP (DT this) (NN guest)))) (. .)))
object_question_acc|(TOP (SBARQ (WHNP (WP What)) (SQ (VBD did) (NP (NNP Philipp)) (VP (VB water) (NP (NN yesterday) (NN evening)))) (. ?)))
object_question_dat|(TOP (SBARQ (WHNP (WP Who)) (SQ (VBD did) (NP (DT the) (NN journalist)) (VP (VB follow) (PP (IN on) (NP (NNP Wednesday))))) (. ?)))
object_question_prep|(TOP (SBARQ (WHNP (WP What)) (SQ (MD will) (NP (PRP they)) (VP (VB take) (NP (NN part)) (PP (IN in)) (NP (NN tomorrow) (NN morning)))) (. ?)))
pain|(TOP (S (NP (PRP$ Her) (NN head)) (VP (VBZ hurts) (PP (IN at) (NP (DT the) (NN moment)))) (. .)))
position_question|(TOP (SQ (VBZ Is) (NP (DT the) (NN sweater)) (VP (VBG lying) (PP (JJ next) (PP (TO to) (NP (DT the) (JJ small) (NN bed))))) (. ?)))
position_question|(TOP (SQ (VBZ Is) (NP (DT the) (NN vase)) (VP (VBG standing) (PP (JJ next) (PP (TO to) (NP (DT the) (JJ brown) (NN cupboard))))) (. ?)))
position|(TOP (S (NP (DT The) (NN puzzle)) (VP (VBZ is) (VP (VBG lying) (PP (JJ next) (PP (TO to) (NP (DT the) (JJ brown) (NN cupboard)))))) (. .)))
purpose|(TOP (S (NP (PRP She)) (VP (VBZ is) (VP (VBG going) (PP (TO to) (NP (DT the) (NN garden))) (S (VP (TO to) (VP (VB sing) (NP (DT a) (JJ wonderful) (NN song))))))) (. .)))
putting|(TOP (S (NP (NNP Paul)) (VP (MD must) (VP (VB put) (NP (DT the) (NN ball)) (PP (IN in) (NP (NP (NN front)) (PP (IN of) (NP (DT the) (JJ big) (NN shelf))))))) (. .)))
relative_accusative|(TOP (S (NP (NP (DT The) (NN book)) (SBAR (WHNP (WDT that)) (S (NP (PRP we)) (VP (MD would) (VP (VB like) (S (VP (TO to) (VP (VB borrow))))))))) (VP (VBZ is) (ADJP (JJ boring))) (. .)))
relative_dative|(TOP (S (NP (NP (DT The) (NN student)) (SBAR (WHNP (WP whom)) (S (NP (NNP Max)) (VP (MD will) (VP (VB forgive) (ADVP (RB soon))))))) (VP (VBZ is) (ADJP (RB very) (JJ poor))) (. .)))
relative_dative|(TOP (S (NP (NP (DT The) (NN teacher)) (SBAR (WHNP (WP whom)) (S (NP (DT the) (NN musician)) (VP (VBZ is) (VP (VBG listening) (PP (TO to))))))) (VP (VBZ is) (ADJP (JJ young))) (. .)))
relative_preposition|(TOP (S (NP (NP (DT The) (NN waiter)) (SBAR (WHNP (WP whom)) (S (NP (NNP Klaus)) (VP (MD will) (VP (VB complain) (PP (IN about)) (NP (JJ next) (NN week))))))) (VP (VBZ is) (ADJP (JJ old))) (. .)))
relative_subject|(TOP (S (NP (NP (DT The) (JJ old) (NN saleswoman)) (SBAR (WHNP (WP who)) (S (VP (VBD smoked))))) (VP (VBZ lives) (PP (IN near) (NP (DT the) (NN station)))) (. .)))
relative_subject|(TOP (S (NP (NP (DT The) (NN journalist)) (SBAR (WHNP (WP who)) (S (VP (VBZ is) (VP (VBG lending) (NP (PRP$ his) (NN nephew)) (NP (DT the) (NN umbrella))))))) (VP (VBZ has) (NP (DT a) (JJ big) (NN house))) (. .)))
relative_subject|(TOP (S (NP (NP (DT The) (NN policeman)) (SBAR (WHNP (WP who)) (S (VP (VBZ is) (VP (VBG turning) (PRT (RP off)) (NP (DT the) (NN vacuum) (NN cleaner))))))) (VP (VBZ speaks) (NP (CD three) (NNS languages))) (. .)))
relative_subject|(TOP (S (NP (NP (DT The) (NN student)) (SBAR (WHNP (WP who)) (S (VP (VBZ is) (VP (VBG drinking) (NP (NN lemonade)) (PP (IN on) (NP (DT the) (NN sofa)))))))) (VP (VBZ works) (NP (DT a) (NN lot))) (. .)))
request|(TOP (S (INTJ (UH Please)) (VP (VB do) (RB not) (VP (VB open) (NP (DT the) (NN window)))) (. .)))
request|(TOP (S (INTJ (UH Please)) (VP (VB explain) (NP (DT the) (NN plan)) (PP (TO to) (NP (DT the) (NN waitress)))) (. .)))
statement|(TOP (S (NP (DT The) (NN customer)) (VP (VBZ is) (VP (VBG getting) (ADJP (JJ used) (PP (TO to) (NP (DT the) (NN boss)))))) (. .)))
statement|(TOP (S (NP (DT The) (NN gardener)) (VP (VBD called) (NP (PRP$ his) (NN father)) (PP (IN at) (NP (NP (NN half)) (PP (IN past) (NP (CD ten))))) (PP (IN on) (NP (NNP Wednesday)))) (. .)))
statement|(TOP (S (NP (DT The) (NN saleswoman)) (VP (VBD woke) (PRT (RP up)) (PP (IN at) (NP (NP (DT a) (NN quarter)) (PP (TO to) (NP (CD four))))) (PP (IN on) (NP (NNP Monday)))) (. .)))
statement|(TOP (S (NP (DT The) (NN saleswoman)) (VP (VBZ is) (VP (VBG playing) (NP (DT the) (NNS drums)))) (. .)))
statement|(TOP (S (NP (DT The) (NN waitress)) (VP (VBZ is) (VP (VBG offering) (NP (DT the) (NN mechanic)) (NP (DT the) (NN soup)))) (. .)))
statement|(TOP (S (NP (DT This) (NN concert)) (VP (VBD ended) (PP (IN at) (NP (CD nine) (RB o'clock))) (NP (JJ last) (NNP Sunday))) (. .)))
statement|(TOP (S (NP (NNP Jan) (CC and) (NNP Helga)) (VP (VBP are) (VP (VBG explaining) (NP (PRP$ their) (NN problem)) (PP (TO to) (NP (PRP$ their) (NN mother))))) (. .)))
statement|(TOP (S (NP (NNP Monika)) (ADVP (RB often)) (VP (VBZ repairs) (NP (NNS trucks)) (PP (IN in) (NP (DT the) (NN garage)))) (. .)))
statement|(TOP (S (NP (PRP$ Your) (NN parrot)) (VP (VBZ has) (ADVP (RB never)) (VP (VBN bitten) (NP (DT a) (JJ small) (NN child)))) (. .)))
that_clause|(TOP (S (NP (NNP Clara)) (VP (VBZ is) (ADJP (JJ surprised) (SBAR (IN that) (S (NP (DT the) (NN journalist)) (VP (VBD did) (RB not) (VP (VB borrow) (NP (DT the) (NN bicycle)))))))) (. .)))
that_clause|(TOP (S (NP (NNP Petra)) (VP (VBZ thinks) (SBAR (IN that) (S (NP (NNP Oliver)) (VP (VBD fell) (PP (IN in) (NP (NN love))) (PP (IN with) (NP (DT a) (JJ German) (NN singer))) (PP (IN on) (NP (NNP Friday))))))) (. .)))
that_clause|(TOP (S (NP (PRP You)) (VP (VBP are) (ADJP (JJ convinced) (SBAR (IN that) (S (NP (DT the) (NN plane)) (VP (VBZ is) (VP (VBG flying))))))) (. .)))
weather_adjective|(TOP (S (NP (PRP It)) (VP (VBD was) (ADJP (RB very) (JJ warm)) (PP (IN in) (NP (NNP Munich))) (PP (IN on) (NP (NNP Monday)))) (. .)))
weather|(TOP (S (NP (PRP It)) (VP (MD will) (VP (VB rain) (PP (IN in) (NP (DT the) (NNP United) (NNPS States))) (NP (NN tomorrow) (NN morning)))) (. .)))
weather|(TOP (S (NP (PRP It)) (VP (VBZ is) (VP (VBG snowing) (PP (IN in) (NP (NNP Australia))) (ADVP (RB now)))) (. .)))
when_question|(TOP (SBARQ (WHADVP (WRB When)) (SQ (MD will) (NP (NNP Sophie)) (VP (VB call) (NP (DT the) (JJ young) (NN saleswoman)))) (. ?)))
where_question|(TOP (SBARQ (WHADVP (WRB Where)) (SQ (VBD did) (NP (NNP Jan)) (VP (VB watch) (NP (DT a) (NN programme)) (NP (JJ last) (NN week)))) (. ?)))
whether_clause|(TOP (S (NP (NNP Martin)) (VP (VBZ does) (RB not) (VP (VB know) (SBAR (IN whether) (S (NP (NNP Anna)) (VP (MD will) (VP (VB read) (NP (CD five) (NNS novels)) (NP (NN tomorrow) (NN evening)))))))) (. .)))
whether_clause|(TOP (S (NP (NNP Max)) (VP (VBZ does) (RB not) (VP (VB know) (SBAR (IN whether) (S (NP (DT the) (JJ good) (NN nurse)) (VP (VBD fell) (ADJP (JJ asleep))))))) (. .)))
while_clause|(TOP (S (SBAR (IN While) (S (NP (NNP Sabine)) (VP (VBZ is) (VP (VBG cooking) (NP (DT a) (JJ brown) (NN egg)))))) (, ,) (NP (NNP Michael)) (VP (VBZ is) (VP (VBG doing) (NP (DT the) (NN shopping)))) (. .)))
while_clause|(TOP (S (SBAR (IN While) (S (NP (PRP$ our) (NN hairdresser)) (VP (VBZ is) (VP (VBG taking) (NP (NN part)) (PP (IN in) (NP (DT the) (NN competition))))))) (, ,) (NP (NNP Georg)) (VP (VBZ is) (VP (VBG working))) (. .)))
who_question|(TOP (SBARQ (WHNP (WP Who)) (SQ (VP (VBD borrowed) (NP (CD five) (NNS bicycles)) (ADVP (NP (CD three) (NNS months)) (RB ago)))) (. ?)))
why_question|(TOP (SBARQ (WHADVP (WRB Why)) (SQ (VBD did) (NP (PRP they)) (VP (VB clean) (NP (PRP$ their) (NN room)) (PP (IN on) (NP (NNP Wednesday))))) (. ?)))
yes_no_question|(TOP (SQ (VBP Are) (NP (NNP Karl) (CC and) (NNP Philipp)) (VP (VBG watering) (NP (DT the) (JJ big) (NN tree)) (NP (NN today))) (. ?)))
zu_infinitive|(TOP (S (NP (PRP He)) (VP (VBZ has) (NP (NP (DT no) (NN time)) (SBAR (S (VP (TO to) (VP (VB photograph) (NP (DT a) (JJ heavy) (NN statue)))))))) (. .)))
zu_infinitive|(TOP (S (NP (PRP We)) (VP (VBP have) (NP (NP (DT no) (NN time)) (SBAR (S (VP (TO to) (VP (VB open) (NP (DT a) (JJ blue) (NN door)))))))) (. .)))
"""

# What these trees are of is said by few sentences, so they are built.
_DOG, _RADIO = (
    nominals.noun_phrase(LEXICON.nouns[noun], determiner)
    for noun, determiner in (("dog", "the"), ("radio", "the"))
)
_IT = nominals.it("n")


def _clause(verb: str, tense: str, **parts: object) -> Clause:
    frame = next(f for f in (*LEXICON.frames, *LEXICON.motions) if f.verb.phrase == verb)
    return Clause(nominals.SHE, frame, tense, **parts)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def walk() -> list[tuple[str, Sentence]]:
    return list(islice(sampling.Walker(1, "train"), 20_000))


@pytest.fixture(scope="module")
def found(walk: list[tuple[str, Sentence]]) -> dict[str, str]:
    """Trees of many sentences, with the construction before them, by what is said."""
    return {sentence.english: f"{construction}|{sentence.tree}" for construction, sentence in walk}


@pytest.mark.parametrize("expected", EXPECTED.strip().splitlines())
def test_trees_written_by_hand(expected: str, found: dict[str, str]) -> None:
    assert found[_written(parse_tree(expected.partition("|")[2]).words)] == expected


def test_a_tree_was_written_for_each_construction() -> None:
    constructions = {variant.construction for variant in sampling.VARIANTS}
    assert {line.partition("|")[0] for line in EXPECTED.strip().splitlines()} == constructions


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (
            _clause("turn on", "past", accusative=_IT),
            "(VP (VBD turned) (NP (PRP it)) (PRT (RP on)))",
        ),
        (
            _clause("turn on", "past", accusative=_RADIO),
            "(VP (VBD turned) (PRT (RP on)) (NP (DT the) (NN radio)))",
        ),
        (
            _clause("give", "past", accusative=_IT, dative=_DOG),
            "(VP (VBD gave) (NP (PRP it)) (PP (TO to) (NP (DT the) (NN dog))))",
        ),
        (
            _clause("take care of", "perfect", prepositional=_DOG, adverb=("(ADVP (RB just))", "")),
            "(VP (VBZ has) (ADVP (RB just)) (VP (VBN taken) (NP (NN care)) "
            "(PP (IN of) (NP (DT the) (NN dog)))))",
        ),
        (
            _clause("sleep", "present", negated=True, gladly=True),
            "(VP (VBZ does) (RB not) (VP (VB like) (S (VP (VBG sleeping)))))",
        ),
        (
            _clause("sleep", "modal", negated=True, modal=phrases.PAST_MODALS["had to"]),
            "(VP (VBD did) (RB not) (VP (VB have) (S (VP (TO to) (VP (VB sleep))))))",
        ),
    ],
)
def test_verb_phrases(clause: Clause, expected: str) -> None:
    assert clause.english_verb_phrase() == expected


@pytest.mark.parametrize(
    ("modal", "expected"),
    [
        # Not to want has the reason, and so does the one verb there is; to sleep has the time.
        (
            "want",
            "(VP (VBZ wants) (S (VP (TO to) (VP (VB sleep) (NP (NN today))))) (SBAR why))",
        ),
        ("can", "(VP (MD can) (VP (VB sleep) (NP (NN today)) (SBAR why)))"),
    ],
)
def test_what_a_reason_belongs_to(modal: str, expected: str) -> None:
    time = ("(NP (NN today))", "heute")
    clause = _clause("sleep", "modal", modal=phrases.MODALS[modal], time=time)
    assert clause.english_verb_phrase(reason="(SBAR why)") == expected


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            "(S (NP (NP (NNS boys) (POS ')) (NN dog)) (, ,) (NP (RB o'clock)) (. .))",
            "boys' dog, o'clock.",
        ),
        ("(S (NP (PRP we)) (VP (MD can) (RB not) (VP (VB go))))", "we cannot go"),
        ("(VP (MD could) (RB not) (VP (VB go)))", "could not go"),
        ("(NP (NP (NNP Anna) (POS 's)) (NN dog))", "Anna's dog"),
    ],
)
def test_words_of_a_tree(tree: str, expected: str) -> None:
    assert penn.text(tree) == expected


# --- The stream -----------------------------------------------------------------------------------


def _written(tokens: tuple[str, ...]) -> str:
    """Undo the tokenisation of the Penn Treebank."""
    text = ""
    for token in tokens:
        if token == "not" and text.endswith(" can") or token in ("'s", "'", ",", ".", "?"):
            text += token
        else:
            text += f" {token}"
    return text.strip()


def _tokens(text: str) -> tuple[str, ...]:
    """The Penn Treebank's tokens of a sentence."""
    text = re.sub(r"([,.?])", r" \1", text.replace("cannot", "can not"))
    return tuple(re.sub(r"('s|(?<=s)')(?= )", r" \1", text).split())


@pytest.fixture(scope="module")
def pairs(walk: list[tuple[str, Sentence]], thorough: bool) -> list[Pair]:
    """Of the walks that splits are taken from; with more time of splits, a part of each walk."""
    if thorough:
        return [
            pair
            for split, count, seeds in (("train", 12_000, 4), ("valid", 500, 2), ("test", 500, 3))
            for seed in range(seeds)
            for pair in generate(split, count, seed)  # type: ignore[arg-type]
        ]
    streams = {"train": 10_000, "valid": 1_000, "test": 1_000, "new combinations": 500}
    others = (islice(sampling.Walker(0, stream), count) for stream, count in streams.items())
    return [Pair(s.english, s.german, (), s.tree) for _, s in chain(walk, *others)]


@pytest.fixture(scope="module")
def parsed(pairs: list[Pair]) -> list[tuple[Pair, Tree]]:
    """Every third of them, and their trees."""
    return [(pair, parse_tree(pair.tree)) for pair in pairs[::3]]


@pytest.fixture(scope="module")
def tagged(parsed: list[tuple[Pair, Tree]]) -> dict[str, set[str]]:
    """The words of each tag, in small letters."""
    tags = defaultdict(set)
    for _, tree in parsed:
        for word, tag in zip(tree.words, tree.tags, strict=True):
            tags[tag].add(word.lower())
    return tags


def test_sentences_are_what_they_were_without_trees() -> None:
    digests = []
    for split in SPLITS:
        for seed in (1, 7):
            digest = hashlib.sha256()
            for pair in generate(split, 2_000 if split == "train" else 500, seed):  # type: ignore[arg-type]
                line = f"{pair.source}\t{pair.target}\t{','.join(pair.phenomena)}\n"
                digest.update(line.encode())
            digests.append(digest.hexdigest()[:16])
    # Of commit e0aa5ad, which had no trees.
    assert digests == [
        "3fff358f50fbfb23",
        "73500094d72b0b12",
        "a8c84605d54ba733",
        "1e1c65e7062a02bd",
        "8a3387412c41abc6",
        "0f1e38adfc4dad2b",
    ]


def test_leaves_are_the_words(parsed: list[tuple[Pair, Tree]]) -> None:
    for pair, tree in parsed:
        assert tree.words == _tokens(pair.source)
        assert _written(tree.words) == pair.source
        assert str(clean(tree)) == pair.tree


def test_a_sentence_has_one_tree(pairs: list[Pair]) -> None:
    trees = defaultdict(set)
    times = Counter(pair.source for pair in pairs)
    for pair in pairs:
        trees[pair.source].add(pair.tree)
    assert sum(n > 1 for n in times.values()) >= 300
    assert [t for t in trees.values() if len(t) > 1] == []


# What each label stands over, as a pattern of the labels below it.
_VERB = "(VB|VBD|VBG|VBN|VBP|VBZ|MD|TO)"
_COMPLEMENTS = "( PRT)?( NP){0,2}( PRT)?( ADJP)?( ADVP)?( PP){0,2}"
_ADVERBIALS = "( NP| PP| ADVP){0,4}"
RULES = {
    "TOP": "S|SQ|SBARQ",
    "S": "((NP|PP|ADVP|SBAR ,|INTJ) )?(NP )?(ADVP )?VP( \\.)?|S , CC S \\.",
    "SQ": "(VBZ|VBP|VBD|MD) NP (ADVP )?(VP|ADJP)( \\.)?|VP",
    "SBARQ": "(WHNP|WHADVP) SQ \\.",
    "SBAR": "IN S|WHNP S|S",
    "VP": f"{_VERB}( RB)?( ADVP)? VP|{_VERB}( RB)?{_COMPLEMENTS}{_ADVERBIALS}( S)?( SBAR)?",
    "NP": "((DT|PDT DT|PRP\\$|CD) )?(JJ )?(NN |NNP )?(NN|NNS|NNP|NNPS)( POS)?|NP (JJ )?(NN )?(NN|NNS)"
    "|PRP|PRP POS|EX|CD|CD RB|NP PP|NP SBAR|NP CC NP|NNP CC NNP|DT NNP NNPS",
    "PP": "(IN|TO) NP|IN|TO|JJ PP|ADVP IN NP",
    "ADJP": "((RB|RBR) )?(JJ|JJR)( SBAR| S| PP)?|ADJP PP",
    "ADVP": "RB|RBR|RB RB|NP RB",
    "PRT": "RP",
    "WHNP": "WP|WDT",
    "WHADVP": "WRB",
    "INTJ": "UH",
}
_NODE = re.compile(r"\(([^ ()]+)((?: <[^<>]+>)+)\)")
_LEAF = re.compile(r"\(([^ ()]+) [^ ()]+\)")


def _nodes(tree: str) -> Iterator[tuple[str, str]]:
    """Each node's label and the labels below it, bottom up."""
    tree = _LEAF.sub(r"<\1>", tree)
    while "(" in tree:
        for label, below in _NODE.findall(tree):
            yield label, re.sub("[<>]", "", below).strip()
        tree = _NODE.sub(r"<\1>", tree)


def test_labels_stand_over_what_they_may(pairs: list[Pair]) -> None:
    seen = Counter(node for pair in pairs for node in _nodes(pair.tree))
    assert {label for label, _ in seen} == set(RULES)
    for label, below in seen:
        assert re.fullmatch(RULES[label], below), (label, below)


def test_tags_of_words(tagged: dict[str, set[str]]) -> None:
    closed = {
        ".": ". ?",
        ",": ",",
        "CC": "and but",
        "DT": "a an any every no the this",
        "EX": "there",
        "MD": "can could must should will would",
        "PDT": "half",
        "POS": "' 's",
        "PRP": "he her him i it me one she them they us we you",
        "PRP$": "her his my our their your",
        "RP": "along away off on out up",
        "TO": "to",
        "UH": "please",
        "WDT": "that",
        "WP": "what who whom",
        "WRB": "when where why",
    }
    for tag, words in closed.items():
        assert tagged[tag] <= set(words.split()), tag
        assert len(tagged[tag]) >= len(words.split()) - 3, tag
    open_classes = "CD IN JJ JJR NN NNP NNPS NNS RB RBR VB VBD VBG VBN VBP VBZ"
    assert set(tagged) == set(closed) | set(open_classes.split())


def test_tags_are_those_of_the_lexicon(tagged: dict[str, set[str]]) -> None:
    verbs = [frame.verb for frame in (*LEXICON.frames, *LEXICON.motions)]
    be, have = {"is", "was", "were"}, {"has", "had"}
    plural = {word for noun in LEXICON.nouns.values() for word in noun.english_plural.split()}
    allowed = {
        "VBG": {verb.ing for verb in verbs}
        | set(
            "asking doing going having hailing laying lying planning putting raining "
            "shining snowing taking telephoning trying".split()
        ),
        "VBD": {verb.past for verb in verbs}
        | be
        | have
        | set("did hailed hurt put rained snowed wanted".split()),
        "VBN": {verb.perfect for verb in verbs}
        | set("allowed decided dressed forgotten had heard left noticed promised taken".split()),
        "VBZ": {verb.third for verb in verbs}
        | be
        | have
        | set("believes claims does hurts says suspects thinks wants".split()),
        "NNS": plural
        | set(
            "children days drawers drums friends hours languages months vegetables weeks".split()
        ),
    }
    for tag, words in allowed.items():
        assert tagged[tag] <= words, tag


_AFTER_AUXILIARY = re.compile(
    r"\((?:[A-Z]+) (\w+)\)(?: \(RB not\))?(?: \(ADVP \(RB \w+\)\))? \(VP \(([A-Z]+) "
)


def test_auxiliaries_have_their_form_of_the_verb(pairs: list[Pair]) -> None:
    forms = {
        **{word: {"VBG", "VBN"} for word in ("am", "is", "are", "was", "were")},
        **{word: {"VBN"} for word in ("have", "has", "had", "got")},
    }
    for pair in pairs:
        for auxiliary, tag in _AFTER_AUXILIARY.findall(pair.tree):
            assert tag in forms.get(auxiliary.lower(), {"VB"}), pair.tree
