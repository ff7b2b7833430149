"""Everything in the phrasebook's lexicon that is neither a noun nor a verb.

English phrases of more than one word class are written as trees; an underscore in a tree is where
a clause or an infinitive goes.
"""

# english | english comparative ("more": periphrastic, "-": none) | german | german comparative
# ("=": stem + er) | noun classes it may modify
ADJECTIVE_TABLE = """
old|older|alt|älter|job,=man,=woman,=uncle,=aunt,=grandmother,=grandfather,=neighbour,=friend,pet,farm,vehicle,furniture,clothing,footwear,device,container,building,reading_buy,instrument,art,toy,tree,=flat,=key,=photo,=map,=coin,=city,=village,=song,=film,=gate
young|younger|jung|jünger|job,=man,=woman,=neighbour,=tourist,=customer,=patient,=aunt,=uncle,=guest,pet,farm,wild,=tree
new|newer|neu|=|vehicle,furniture,clothing,footwear,device,container,instrument,job,=boss,=neighbour,=colleague,=book,=novel,=film,=song,=rule,=plan,=idea,=flat,=key,=passport,building,toy,=kitchen,=contract
big|bigger|groß|größer|pet,farm,wild,fruit,=cake,=pizza,=sausage,vehicle,furniture,container,building,room,outdoor,tree,toy,art,=problem,=mistake,=party,=window,=garden,opening
small|smaller|klein|=|child_like,pet,farm,wild,fruit,=cake,=pizza,vehicle,furniture,container,building,room,outdoor,tree,toy,art,=mistake,=present,opening
beautiful|more|schön|=|plant,art,music,clothing_body,=woman,=girl,=city,=island,=beach,=garden,=park,=castle,=church,=valley,=lake,=dream,=wedding,=horse,=bird,=vase,=present,=ring,=house,=flat,=poem,=postcard,=cat
good|better|gut|besser|job,=friend,idea_some,reading,show,=wine,=coffee,=recipe,=restaurant,=hotel,=meat,=cheese,=bread,=soup,=camera,=knife,=lesson,=lecture,=beer
bad|worse|schlecht|=|=idea,=film,=decision,=answer,=dream,=joke,=restaurant,=hotel,=plan,=novel,=play,=programme,=wine,=coffee,=singer,=mechanic,=pupil
expensive|more|teuer|teurer|vehicle,furniture,clothing,footwear,device,container,instrument,=ring,=wine,=cheese,=meat,=hotel,=restaurant,=flat,=present,art,=ticket
cheap|cheaper|billig|=|vehicle,furniture,clothing,footwear,device,container,=ring,=wine,=hotel,=restaurant,=flat,=ticket,=umbrella,=pencil
red|-|rot|=|=apple,=cherry,=tomato,=strawberry,clothing,footwear,=rose,=tulip,=car,=bicycle,=ball,=sofa,=umbrella,=bag,=kite,=lamp,=door,=carpet,=blanket,=backpack,=bus
blue|-|blau|=|clothing,footwear,=car,=bicycle,=ball,=sofa,=umbrella,=bag,=kite,=door,=carpet,=blanket,=backpack,=vase,=cup,=notebook,=towel,=plate,=bird,=armchair
green|-|grün|=|=apple,=pear,clothing,=car,=bicycle,=ball,=sofa,=umbrella,=bag,=bush,=door,=carpet,=frog,=parrot,=meadow,=bottle,=tractor,=bench,=notebook,=towel
yellow|-|gelb|=|clothing,=car,=bicycle,=ball,=umbrella,=bag,=banana,=lemon,=rose,=tulip,=flower,=kite,=bird,=taxi,=bucket,=bowl,=towel,=post office
white|-|weiß|=|clothing,=car,=horse,=rabbit,=mouse,=rose,=cat,=goose,=house,=cupboard,=door,=towel,=plate,=ship,=cow,=chest of drawers,=wine,=flower
black|-|schwarz|=|clothing,footwear,=car,=horse,=dog,=cat,=coffee,=tea,=umbrella,=suitcase,=bag,=pig,=piano,=wallet,=motorbike,=wolf,=armchair
grey|-|grau|=|=mouse,=coat,=suit,=cat,=elephant,=donkey,=house,=sofa,=hat,=wolf,=sweater,=carpet,=scarf,=goose,=office
brown|-|braun|=|=dog,=horse,=bear,=bag,=shoe,=boot,=suitcase,=table,=cow,=jacket,=belt,=egg,=hat,=coat,=rabbit,=cupboard
long|longer|lang|länger|=letter,=story,=email,=report,=dress,=coat,=skirt,=scarf,=river,=street,=bridge,=trip,=film,=lecture,=bench,=novel,=train,=exam,=word,=meeting,=poem,=snake
short|shorter|kurz|kürzer|=letter,=story,=email,=report,=dress,=skirt,=trip,=film,=poem,=answer,=song,=lecture,=message,=word,=meeting,=article,=play
heavy|heavier|schwer|=|container_big,=suitcase,=table,=cupboard,=piano,=television,=parcel,=bag,=box,=armchair,=truck,=statue,=washing machine,=fridge,=door,=gate
light|lighter|leicht|=|=suitcase,=bag,=blanket,=parcel,=backpack,=jacket,=chair,=bicycle,=boat
warm|warmer|warm|wärmer|=coat,=jacket,=sweater,=scarf,=glove,=blanket,=water,=milk,=soup,=bread,=room,=bed,=sock,=cap,=bathroom,=meadow,=roll,=cocoa
cold|colder|kalt|kälter|=water,=milk,=soup,=beer,=tea,=lemonade,=juice,=room,=cellar,=bathroom,=pizza,=meat,=lake,=sea,=coffee,=flat
hot|hotter|heiß|=|=tea,=coffee,=soup,=milk,=water,=cocoa,=pan,=pot,=oven,=potato,=pizza,=sausage
fresh|fresher|frisch|=|fruit,=bread,=roll,=milk,=salad,=cheese,=meat,=butter,=juice,=egg,=vegetables,=fruit,=flower
sweet|sweeter|süß|=|fruit_sweet,=cake,=tea,=wine,=honey,=jam,=lemonade,=cocoa,=biscuit,=chocolate,=juice,=fruit,=pancake
sour|more|sauer|saurer|=apple,=lemon,=cherry,=orange,=milk,=juice,=cucumber,=wine,=yoghurt
ripe|riper|reif|=|=apple,=pear,=banana,=tomato,=strawberry,=cherry,=lemon,=peach,=orange,=fruit
tasty|tastier|lecker|=|dish,=apple,=strawberry,=bread,=cheese,=jam,=meat,=rice,=chocolate,=ham,=honey,=yoghurt,=cocoa,=recipe
dark|darker|dunkel|dunkler|=forest,=cellar,=room,=street,=kitchen,=suit,=flat,=coat,=beer,=bread,=garage,=office,=chocolate,=house,=tie
bright|brighter|hell|=|=room,=kitchen,=flat,=lamp,=office,=living room,=classroom,=bathroom,=bedroom
high|higher|hoch|höher|=mountain,=tower,=bridge,=shelf,=gate
deep|deeper|tief|=|=lake,=river,=sea,=valley,=plate,=bowl,=pot
quiet|quieter|ruhig|=|=street,=village,=hotel,=flat,=room,=neighbour,=child,=baby,=lake,=beach,=valley,=library,=park,=pupil
loud|louder|laut|=|=street,=neighbour,=radio,=washing machine,=dog,=vacuum cleaner,=motorbike,=printer,=party,=child,=factory,=parrot
fast|faster|schnell|=|=car,=train,=bicycle,=horse,=boat,=computer,=ship,=motorbike,=plane,=answer,=decision,=printer,=bus
slow|slower|langsam|=|=bus,=train,=computer,=waiter,=pupil,=tractor,=truck,=tram,=printer,=ship,=horse,=snake
strong|stronger|stark|stärker|=man,=horse,=coffee,=bear,=tea,=lion,=beer,=tiger,=boy,=woman,=elephant,=policeman,=donkey
weak|weaker|schwach|schwächer|=coffee,=tea,=patient,=grandmother,=grandfather
clever|more|klug|klüger|person_adult,=dog,=question,=answer,=decision,=child,=fox,=parrot,=idea,=monkey
stupid|more|dumm|dümmer|=question,=answer,=idea,=mistake,=joke,=decision,=thief,=rule
friendly|friendlier|freundlich|=|person_grown,=dog,=answer,=letter
famous|more|berühmt|=|=singer,=actress,=painter,=doctor,=museum,=picture,=painting,=castle,=song,=poem,=film,=musician,=church,=cook,=lawyer,=university,=statue,=bridge
nice|nicer|nett|=|person_grown,=letter,=present,=email,=message
poor|poorer|arm|ärmer|=man,=woman,=farmer,=student,=village,=child,=painter,=musician
rich|richer|reich|=|=man,=woman,=uncle,=aunt,=lawyer,=city,=tourist,=singer,=boss,=customer,=actress
happy|happier|glücklich|=|person_grown,=child,=baby
sad|sadder|traurig|=|=man,=woman,=child,=girl,=boy,=film,=story,=song,=book,=letter,=dog,=fairy tale,=poem,=melody,=message
tired|more|müde|=|person_grown,=dog,=horse,=child,=donkey
sick|sicker|krank|kränker|person_grown,pet,=horse,=cow,=child
healthy|healthier|gesund|gesünder|=child,=baby,=dog,=horse,=cow,=fruit,=vegetables,=salad,=apple,=tooth
hungry|hungrier|hungrig|=|person_grown,pet,=wolf,=bear,=lion,=child,=bird,=tiger,=guest,=fox,=mouse,=goat
thirsty|thirstier|durstig|=|=man,=child,=horse,=dog,=guest,=cow,=tourist,=customer,=cat
angry|angrier|wütend|=|person_grown,=dog
polite|more|höflich|=|=waiter,=waitress,=man,=answer,=customer,=pupil,=guest,=question,=letter,=saleswoman,=boy,=policeman
brave|braver|mutig|=|=man,=woman,=girl,=policeman,=child,=boy,=policewoman,=decision,=dog,=pilot,=journalist,=farmer
lazy|lazier|faul|=|=pupil,=student,=cat,=dog,=brother,=colleague,=donkey,=son,=gardener,=boy,=nephew
hard-working|more|fleißig|=|=pupil,=student,=farmer,=gardener,=cook,=secretary,=baker,=tailor,=daughter,=colleague,=mechanic,=nurse,=girl
funny|funnier|lustig|=|=story,=film,=joke,=monkey,=uncle,=song,=programme,=picture,=play,=dream,=grandfather,=poem,=parrot,=hat,=postcard
boring|more|langweilig|=|=book,=film,=lesson,=lecture,=play,=programme,=meeting,=match,=story,=article,=party,=novel,=task,=concert,=report,=museum
interesting|more|interessant|=|reading_more,=film,=question,=idea,=lesson,=lecture,=museum,=programme,=plan,=city,=answer,=dream,=concert,=match,=journalist,=book,=task
exciting|more|spannend|=|=book,=film,=match,=story,=novel,=trip,=competition,=play,=programme,=fairy tale,=lecture
difficult|more|schwierig|=|=question,=exam,=task,=decision,=problem,=answer,=word,=rule,=puzzle,=poem,=customer,=lesson,=match
important|more|wichtig|=|idea_some,=letter,=exam,=contract,=meeting,=email,=message,=report,=match,=customer,=decision
simple|simpler|einfach|=|=question,=exam,=task,=decision,=problem,=answer,=rule,=recipe,=plan,=melody,=reason,=dress,=house,=bed
right|-|richtig|=|=answer,=decision,=key,=word,=plan,=street,=bus,=train
wrong|-|falsch|=|=answer,=decision,=key,=word,=plan,=street,=bus,=train,=ticket,=door
modern|more|modern|=|building,=kitchen,=flat,=office,=factory,=lamp,=sofa,=bathroom,=armchair,=train,art
clean|cleaner|sauber|=|room,=window,=shirt,=towel,=plate,=glass,=cup,=blanket,=beach,=lake,=water,=fork,=spoon,=knife,=blouse,=hotel
dirty|dirtier|schmutzig|=|room,=window,=shirt,=towel,=plate,=glass,=cup,=shoe,=boot,=dog,=pig,=car,=hand,=carpet,=pan,=sock,=street,=tractor
broken|-|kaputt|=|vehicle_own,device,=chair,=window,=umbrella,=cup,=doll,=gate,=drawer,=vase
empty|-|leer|=|=glass,=bottle,=cup,=plate,=bag,=suitcase,=box,=basket,=house,=flat,=room,=street,=fridge,=train,=drawer,=bucket,=beach,=wallet,=restaurant,=pot
full|-|voll|=|=glass,=bottle,=bus,=train,=suitcase,=basket,=bag,=cinema,=plate,=bucket,=stadium,=tram,=restaurant
dangerous|more|gefährlich|=|=snake,=bear,=lion,=tiger,=dog,=wolf,=street,=mountain,=river,=bridge,=trip,=thief,=knife,=mushroom
wild|wilder|wild|=|=bear,=horse,=cat,=pig,=goose,=party,=strawberry,=duck,=dog
comfortable|more|bequem|=|=chair,=sofa,=armchair,=bed,=shoe,=boot,=train,=car,=jacket,=sweater,=pillow
practical|more|praktisch|=|=bag,=backpack,=jacket,=knife,=present,=shelf,=idea,=bicycle,=coat,=pan,=car,=suitcase,=camera
soft|softer|weich|=|=bed,=pillow,=blanket,=towel,=bread,=carpet,=sofa,=egg,=butter,=scarf,=banana,=sweater,=pear
hard|harder|hart|härter|=bread,=bed,=bench,=egg,=pear,=pillow,=biscuit,=cheese,=chocolate,=roll
round|-|rund|=|=table,=tower,=carpet,=window,=box,=cake,=coin,=bowl,=pillow,=basket,=vase
narrow|narrower|schmal|=|=street,=bridge,=bed,=bench,=shelf,=door,=river,=window,=cupboard,=valley
wide|wider|breit|=|=street,=bridge,=bed,=bench,=river,=door,=window,=valley,=belt
secret|-|geheim|=|=plan,=letter,=message,=door,=meeting,=wedding,=report,=recipe,=diary,=contract
strict|stricter|streng|=|=teacher,=father,=mother,=boss,=judge,=rule,=aunt,=grandmother,=uncle,=policewoman,=nurse
patient|more|geduldig|=|=teacher,=mother,=doctor,=nurse,=dentist,=grandfather,=father,=gardener,=hairdresser,=donkey
nervous|more|nervös|=|=pupil,=student,=patient,=horse,=singer,=actress,=guest,=customer,=dog,=musician
curious|more|neugierig|=|=child,=neighbour,=cat,=boy,=girl,=tourist,=journalist,=squirrel,=guest,=goat,=hamster,=monkey
careful|more|vorsichtig|=|=pilot,=doctor,=mechanic,=dentist,=gardener,=fox,=answer,=hedgehog
punctual|more|pünktlich|=|=train,=bus,=guest,=customer,=pupil,=student,=secretary,=plane,=tram
elegant|more|elegant|=|=dress,=suit,=woman,=lawyer,=hat,=coat,=tie,=bag,=restaurant,=hotel,=shoe,=blouse,=boat,=actress
foreign|-|fremd|=|=city,=word,=ship,=man,=dog,=cat
German|-|deutsch|=|=film,=car,=song,=word,=novel,=singer,=engineer,=beer,=city,=book,=tourist,=recipe,=newspaper,=wine,=cheese
French|-|französisch|=|=film,=car,=song,=word,=novel,=singer,=cook,=wine,=city,=book,=tourist,=cheese,=bread,=painter,=recipe,=actress
Italian|-|italienisch|=|=film,=car,=song,=cook,=wine,=city,=tourist,=cheese,=painter,=recipe,=restaurant,=shoe,=ham,=coffee
English|-|englisch|=|=film,=song,=word,=novel,=singer,=tea,=city,=book,=tourist,=newspaper,=garden,=magazine,=actress,=biscuit
Swiss|-|Schweizer|-|=watch,=cheese,=chocolate,=tourist,=village,=lake,=knife,=mountain
wooden|-|hölzern|=|=bridge,=bench,=door,=box,=spoon,=table,=horse,=house,=bowl,=chair,=gate
valuable|more|wertvoll|=|=ring,=painting,=watch,=coin,=stamp,=vase,=violin,=picture,=carpet,=statue,=book,=cello
terrible|more|schrecklich|=|=dream,=mistake,=film,=story,=song,=message,=secret,=decision
wonderful|more|wunderbar|=|=trip,=party,=wedding,=concert,=idea,=dream,=garden,=cake,=song,=singer,=island,=present,=play,=cook,=beach
useful|more|nützlich|=|=book,=present,=idea,=map,=rule,=answer,=knife,=report,=camera,=vacuum cleaner,=hammer
honest|more|ehrlich|=|=answer,=man,=woman,=lawyer,=mechanic,=opinion,=friend,=boy,=thief,=butcher,=judge
unusual|more|ungewöhnlich|=|=question,=idea,=present,=hat,=answer,=tree,=house,=flower,=bird,=dream,=reason,=wedding
"""

# Manner adverbs: english tree | german, by group.
MANNER_TABLES: dict[str, str] = {
    "rest": """
(ADVP (RB well))|gut
(ADVP (RB badly))|schlecht
(ADVP (RB peacefully))|friedlich
(ADVP (RB deeply))|tief
""",
    "work": """
(ADVP (RB hard))|hart
(ADVP (RB diligently))|fleißig
(PP (IN with) (NP (NN pleasure)))|mit Freude
(PP (IN with) (NP (JJ great) (NN patience)))|mit viel Geduld
""",
    "loud": """
(ADVP (RB loudly))|laut
(ADVP (RB very) (RB loudly))|sehr laut
(ADVP (RB non-stop))|ununterbrochen
""",
    "quiet": """
(ADVP (RB quietly))|leise
(ADVP (RB very) (RB quietly))|sehr leise
(PP (IN for) (NP (DT a) (JJ long) (NN time)))|lange
""",
    "joy": """
(PP (IN with) (NP (NN pleasure)))|mit Freude
(PP (IN with) (NP (JJ great) (NN enthusiasm)))|mit großer Begeisterung
(PP (IN for) (NP (DT a) (JJ long) (NN time)))|lange
(PP (IN with) (NP (NNS friends)))|mit Freunden
(PP (IN for) (NP (NNS hours)))|stundenlang
(ADVP (RB alone))|allein
""",
    "speed": """
(ADVP (RB quickly))|schnell
(ADVP (RB slowly))|langsam
(ADVP (RB very) (RB quickly))|sehr schnell
(ADVP (RB very) (RB slowly))|sehr langsam
""",
    "slow": """
(ADVP (RB slowly))|langsam
(PP (IN for) (NP (PDT half) (DT an) (NN hour)))|eine halbe Stunde lang
(ADVP (RB alone))|allein
(PP (IN with) (NP (NNS friends)))|mit Freunden
""",
    "patient": """
(ADVP (RB patiently))|geduldig
(PP (IN for) (NP (DT a) (JJ long) (NN time)))|lange
(PP (IN for) (NP (NNS hours)))|stundenlang
(ADVP (RB impatiently))|ungeduldig
""",
    "earlylate": """
(ADVP (RB early))|früh
(ADVP (RB late))|spät
(ADVP (RB very) (RB early))|sehr früh
(ADVP (RB very) (RB late))|sehr spät
""",
    "sleepy": """
(ADVP (RB quickly))|schnell
(ADVP (RB late))|spät
(ADVP (RB very) (RB late))|sehr spät
""",
    "punctual": """
(PP (IN on) (NP (NN time)))|pünktlich
(ADVP (RB too) (RB late))|zu spät
""",
    "safe": """
(ADVP (RB safely))|sicher
""",
    "slowfast": """
(ADVP (RB quickly))|schnell
(ADVP (RB slowly))|langsam
""",
    "sudden": """
(ADVP (RB suddenly))|plötzlich
""",
    "friendly": """
(PP (IN in) (NP (DT a) (JJ friendly) (NN way)))|freundlich
(ADVP (RB politely))|höflich
""",
    "attentive": """
(ADVP (RB attentively))|aufmerksam
(ADVP (RB patiently))|geduldig
(PP (IN with) (NP (JJ great) (NN interest)))|mit großem Interesse
""",
    "careful": """
(ADVP (RB carefully))|sorgfältig
(ADVP (RB very) (RB carefully))|sehr sorgfältig
""",
    "skill": """
(ADVP (RB skilfully))|geschickt
(ADVP (RB quickly))|schnell
(PP (IN without) (NP (NN help)))|ohne Hilfe
""",
    "gentle": """
(ADVP (RB gently))|sanft
(ADVP (RB lovingly))|liebevoll
""",
    "loving": """
(ADVP (RB lovingly))|liebevoll
(PP (IN with) (NP (JJ great) (NN patience)))|mit viel Geduld
""",
    "chance": """
(PP (IN by) (NP (NN chance)))|zufällig
(PP (ADVP (RB quite)) (IN by) (NP (NN chance)))|ganz zufällig
""",
    "secret": """
(ADVP (RB secretly))|heimlich
""",
    "polite": """
(ADVP (RB politely))|höflich
(ADVP (RB very) (RB politely))|sehr höflich
""",
    "play": """
(ADVP (RB well))|gut
(ADVP (RB badly))|schlecht
(PP (IN with) (NP (JJ great) (NN enthusiasm)))|mit großer Begeisterung
""",
    "speak": """
(ADVP (RB well))|gut
(ADVP (RB fluently))|fließend
(ADVP (RB very) (RB well))|sehr gut
""",
}

# Degree adverbs before a predicative adjective.
DEGREE_TABLE = """
very|sehr
too|zu
quite|ziemlich
really|wirklich
extremely|äußerst
"""

# Where things happen: english preposition | german preposition and case (d) | noun, by group.
PLACE_TABLES: dict[str, str] = {
    "sleep": "in|in|bedroom\non|auf|sofa\nin|in|garden\nin|in|living room",
    "work": "in|in|office\nin|in|garden\nin|in|factory\nin|in|hospital\nin|in|restaurant\n"
    "in|in|hotel\nin|in|library\nat|auf|market\nin|in|shop",
    "leisure": "in|in|garden\nin|in|park\non|an|beach\nin|in|kitchen",
    "home": "in|in|kitchen\nin|in|living room\nin|in|bedroom",
    "water": "in|in|lake\nin|in|swimming pool\nin|in|sea\nin|in|river",
    "walk": "in|in|park\non|an|beach\nin|in|forest\nin|in|stadium",
    "nature": "in|in|forest\nin|in|valley\nin|in|park\non|an|beach\nby|an|river",
    "station": "at|an|station\nin|in|café\nin|in|hotel\nin front of|vor|cinema\nin front of|vor|school",
    "balcony": "in|in|garden\nin front of|vor|hotel\nbehind|hinter|house\nin|in|park",
    "couch": "on|auf|sofa\nin|in|cinema\nin|in|armchair\nin|in|theatre",
    "arrival": "at|an|station\nin|in|harbour\nin|in|city",
    "landing": "at|auf|airport",
    "outside": "on|auf|meadow\nin|in|garden\nin front of|vor|house\nin|in|park\nbehind|hinter|house",
    "hush": "in|in|library\nin|in|church\nin|in|theatre\nin|in|classroom\nin|in|cinema",
    "venue": "in|in|town hall\nin|in|hotel\nin|in|garden\nin|in|castle\nin|in|restaurant",
    "street": "in front of|vor|hotel\nin front of|vor|bridge\nin front of|vor|school\n"
    "behind|hinter|station",
    "sewing": "in|in|living room\nin|in|bedroom",
    "study": "in|in|library\nin|in|kitchen\nin|in|living room\nin|in|office\nin|in|garden",
    "readroom": "in|in|library\nin|in|garden\nin|in|café\non|auf|sofa\nin|in|bed\nin|in|park\n"
    "on|an|beach\nin|in|living room",
    "mealroom": "in|in|kitchen\nin|in|garden\nin|in|restaurant\nin|in|café\nin|in|park\non|auf|sofa",
    "kitchen": "in|in|kitchen",
    "workshop": "in|in|garage\nin|in|cellar\nin front of|vor|house\nbehind|hinter|house",
    "garden": "in|in|garden\nbehind|hinter|house\nin front of|vor|house",
    "seen": "in|in|city\nin|in|park\nin|in|forest\nat|auf|market",
    "watchroom": "in|in|living room\nat|in|cinema\nin|in|hotel",
    "meet": "in|in|café\nat|an|station\nin|in|park\nin front of|vor|cinema\nat|auf|market\n"
    "in|in|library\nat|auf|party\nin|in|theatre",
    "clinic": "in|in|hospital",
    "sport": "in|in|park\non|auf|meadow\nin|in|garden",
    "helproom": "in|in|kitchen\nin|in|garden\nin|in|office\nat|an|station\nin|in|library",
    "arrest": "at|an|station\nin|in|hotel\nin front of|vor|bakery\nat|auf|airport\nin|in|park",
    # Places of the verbs of rest.
    "stay": "in|in|hotel\nin|in|bed\nin|in|office\nin|in|hospital\nin|in|garden\nin|in|village\n"
    "in|in|city\nin|in|kitchen\non|auf|island\nin|in|school",
    "sit": "on|auf|sofa\nin|in|armchair\non|auf|bench\nin|in|garden\nin|in|café\nat|an|table\n"
    "at|an|desk\non|in|train\nin|in|kitchen\non|an|beach\nby|an|window\non|in|plane\nunder|unter|tree",
    "stand": "in front of|vor|door\nin front of|vor|university\nin|in|harbour\nbehind|hinter|post office\nbehind|hinter|house\non|auf|bridge\nby|an|window\n"
    "in front of|vor|supermarket\nnext to|neben|car\nin front of|vor|painting\nunder|unter|tree\n"
    "next to|neben|gate\non|auf|tower\nin front of|vor|pharmacy",
}

# Where people go: german preposition | noun ("to the ..." in English).
DIRECTION_TABLES: dict[str, str] = {
    "walkable": """
in|park
in|cinema
in|theatre
in|church
in|restaurant
in|café
in|library
in|museum
in|garden
in|kitchen
in|cellar
in|forest
in|office
in|hotel
in|supermarket
in|bakery
in|pharmacy
in|zoo
in|stadium
in|swimming pool
in|school
zu|station
zu|post office
zu|town hall
zu|doctor
zu|dentist
zu|hairdresser
zu|lake
zu|river
zu|bridge
zu|meeting
zu|neighbour
an|beach
auf|market
auf|playground
""",
    "reachable": """
zu|station
zu|post office
zu|town hall
zu|doctor
zu|lake
zu|river
zu|bridge
zu|supermarket
zu|bakery
zu|pharmacy
zu|school
zu|church
zu|hotel
zu|neighbour
zu|harbour
zu|car
zu|house
""",
}

# german preposition plus article for places in cities and countries:
# name english | direction german | location german | origin german
CITIES = (
    "Berlin Hamburg Munich|München Cologne|Köln Vienna|Wien Zurich|Zürich Dresden Leipzig Bremen "
    "Stuttgart Frankfurt Paris London Rome|Rom Madrid Prague|Prag Warsaw|Warschau Copenhagen|Kopenhagen "
    "Budapest Lisbon|Lissabon Athens|Athen Brussels|Brüssel Moscow|Moskau Geneva|Genf Hanover|Hannover "
    "Nuremberg|Nürnberg Salzburg Venice|Venedig"
)
# Countries without an article in German, then those with one: english | accusative | dative.
COUNTRIES_BARE = (
    "Germany|Deutschland France|Frankreich Italy|Italien Spain|Spanien Austria|Österreich "
    "Poland|Polen Denmark|Dänemark Sweden|Schweden Norway|Norwegen Greece|Griechenland "
    "Portugal Japan China India|Indien Canada|Kanada Belgium|Belgien Ireland|Irland "
    "Hungary|Ungarn Brazil|Brasilien Australia|Australien"
)
COUNTRIES_WITH_ARTICLE = (
    "Switzerland|die Schweiz|der Schweiz",
    "Turkey|die Türkei|der Türkei",
    "Ukraine|die Ukraine|der Ukraine",
    "the Netherlands|die Niederlande|den Niederlanden",
    "the United States|die Vereinigten Staaten|den Vereinigten Staaten",
)

FEMALE_NAMES = (
    "Anna Maria Julia Laura Sophie Emma Lena Clara Martha Eva Lisa Nina Petra Susanne Karin Helga "
    "Monika Sabine Johanna Marie"
)
MALE_NAMES = (
    "Peter Paul Max Felix Jan Thomas Martin Karl David Stefan Michael Andreas Oliver Simon Robert "
    "Daniel Philipp Georg Klaus Jakob"
)

NUMBERS = (
    "two|zwei three|drei four|vier five|fünf six|sechs seven|sieben eight|acht nine|neun "
    "ten|zehn eleven|elf twelve|zwölf twenty|zwanzig"
)

# Times, by the tenses they go with.  "freq" ones stand in the middle of an English clause.
TIME_TABLES: dict[str, str] = {
    "progressive": """
(ADVP (RB now))|jetzt
(PP (IN at) (NP (DT the) (NN moment)))|im Moment
(NP (NN today))|heute
(NP (DT this) (NN evening))|heute Abend
""",
    "habit": """
(NP (DT every) (NN day))|jeden Tag
(NP (DT every) (NN morning))|jeden Morgen
(NP (DT every) (NN evening))|jeden Abend
(NP (DT every) (NN week))|jede Woche
(PP (IN on) (NP (NNPS Mondays)))|montags
(PP (IN on) (NP (NNPS Tuesdays)))|dienstags
(PP (IN on) (NP (NNPS Thursdays)))|donnerstags
(PP (IN on) (NP (NNPS Saturdays)))|samstags
(PP (IN on) (NP (NNPS Sundays)))|sonntags
(PP (IN at) (NP (DT the) (NN weekend)))|am Wochenende
(PP (IN in) (NP (DT the) (NN afternoon)))|am Nachmittag
(PP (IN in) (NP (DT the) (NN morning)))|am Morgen
""",
    "freq": """
(ADVP (RB often))|oft
(ADVP (RB sometimes))|manchmal
(ADVP (RB rarely))|selten
(ADVP (RB usually))|meistens
""",
    "past": """
(NP (NN yesterday))|gestern
(NP (DT this) (NN morning))|heute Morgen
(NP (JJ last) (NN week))|letzte Woche
(NP (JJ last) (NN year))|letztes Jahr
(NP (NN yesterday) (NN evening))|gestern Abend
(NP (NP (DT the) (NN day)) (PP (IN before) (NP (NN yesterday))))|vorgestern
(PP (IN on) (NP (NNP Monday)))|am Montag
(PP (IN on) (NP (NNP Wednesday)))|am Mittwoch
(PP (IN on) (NP (NNP Friday)))|am Freitag
(ADVP (NP (CD two) (NNS days)) (RB ago))|vor zwei Tagen
(ADVP (NP (DT a) (NN week)) (RB ago))|vor einer Woche
(ADVP (NP (CD three) (NNS months)) (RB ago))|vor drei Monaten
(NP (JJ last) (NN month))|letzten Monat
(NP (JJ last) (NN summer))|letzten Sommer
(NP (NN yesterday) (NN morning))|gestern Morgen
(ADVP (NP (DT a) (JJ few) (NNS hours)) (RB ago))|vor ein paar Stunden
(NP (JJ last) (NNP Sunday))|letzten Sonntag
""",
    "future": """
(NP (NN tomorrow))|morgen
(NP (JJ next) (NN week))|nächste Woche
(NP (JJ next) (NN year))|nächstes Jahr
(ADVP (RB soon))|bald
(NP (NP (DT the) (NN day)) (PP (IN after) (NP (NN tomorrow))))|übermorgen
(NP (NN tomorrow) (NN morning))|morgen früh
(NP (NN tomorrow) (NN evening))|morgen Abend
(ADVP (RBR later))|später
(PP (IN on) (NP (NNP Tuesday)))|am Dienstag
(PP (IN on) (NP (NNP Saturday)))|am Samstag
(PP (IN in) (NP (CD two) (NNS weeks)))|in zwei Wochen
(NP (JJ next) (NN month))|nächsten Monat
(NP (JJ next) (NNP Sunday))|nächsten Sonntag
(PP (IN in) (NP (NN autumn)))|im Herbst
(PP (IN in) (NP (NN spring)))|im Frühling
""",
    "modal": """
(ADVP (RB now))|jetzt
(NP (NN today))|heute
(NP (NN tomorrow))|morgen
(NP (JJ next) (NN week))|nächste Woche
(PP (IN on) (NP (NNP Monday)))|am Montag
(NP (DT this) (NN evening))|heute Abend
(PP (IN at) (NP (DT the) (NN weekend)))|am Wochenende
(NP (NN tomorrow) (NN morning))|morgen früh
""",
    "perfect": """
(ADVP (RB already))|schon
(ADVP (RB just))|gerade
(ADVP (RB never))|noch nie
(ADVP (RB finally))|endlich
""",
    "clock": """
(PP (IN at) (NP (CD eight) (RB o'clock)))|um acht Uhr
(PP (IN at) (NP (CD nine) (RB o'clock)))|um neun Uhr
(PP (IN at) (NP (CD twelve) (RB o'clock)))|um zwölf Uhr
(PP (IN at) (NP (NN midnight)))|um Mitternacht
(PP (IN at) (NP (NP (NN half)) (PP (IN past) (NP (CD six)))))|um halb sieben
(PP (IN at) (NP (NP (NN half)) (PP (IN past) (NP (CD ten)))))|um halb elf
(PP (IN at) (NP (NP (DT a) (NN quarter)) (PP (IN past) (NP (CD five)))))|um Viertel nach fünf
(PP (IN at) (NP (NP (DT a) (NN quarter)) (PP (TO to) (NP (CD four)))))|um Viertel vor vier
""",
}

# Passing states of a person: english verb | rest | german verb | rest.
STATE_TABLE = """
be|(ADJP (JJ tired))|sein|müde
be|(ADJP (JJ sick))|sein|krank
have|(NP (JJ little) (NN time))|haben|wenig Zeit
have|(NP (DT a) (NN cold))|sein|erkältet
have|(NP (NP (DT a) (NN lot)) (PP (IN of) (NP (NN work))))|haben|viel Arbeit
have|(NP (DT a) (NN headache))|haben|Kopfschmerzen
have|(NP (DT a) (NN fever))|haben|Fieber
be|(PP (IN in) (NP (DT a) (NN hurry)))|haben|es eilig
have|(NP (NN stomach) (NN ache))|haben|Bauchschmerzen
be|(ADJP (RB very) (JJ tired))|sein|sehr müde
have|(NP (DT a) (JJ bad) (NN cold))|sein|stark erkältet
"""

# Weather for reasons: english present | german main clause order | german verb-final order.
WEATHER_CLAUSES = """
(NP (PRP it)) (VP (VBZ is) (VP (VBG raining)))|es regnet|es regnet
(NP (PRP it)) (VP (VBZ is) (VP (VBG snowing)))|es schneit|es schneit
(NP (PRP it)) (VP (VBZ is) (ADJP (RB very) (JJ cold)))|es ist sehr kalt|es sehr kalt ist
(NP (DT the) (NN weather)) (VP (VBZ is) (ADJP (JJ bad)))|das Wetter ist schlecht|das Wetter schlecht ist
"""

# Conditions whose subject is the person of the main clause: as STATE_TABLE.
CONDITION_TABLE = """
have|(NP (NN time))|haben|Zeit
have|(NP (JJ enough) (NN time))|haben|genug Zeit
be|(RB not) (ADJP (RB too) (JJ tired))|sein|nicht zu müde
be|(ADJP (JJ well)) (ADVP (RB again))|sein|wieder gesund
be|(PP (IN at) (NP (NN home)))|sein|zu Hause
have|(NP (DT the) (NN day)) (ADVP (RB off))|haben|frei
"""

WEATHER_CONDITIONS = """
(NP (DT the) (NN weather)) (VP (VBZ is) (ADJP (JJ good)))|das Wetter gut ist
(NP (PRP it)) (VP (VBZ does) (RB not) (VP (VB rain)))|es nicht regnet
(NP (PRP it)) (VP (VBZ is) (RB not) (ADJP (RB too) (JJ cold)))|es nicht zu kalt ist
(NP (DT the) (NN sun)) (VP (VBZ is) (VP (VBG shining)))|die Sonne scheint
"""

# Events that a day is ordered by: english past | english past perfect | german | auxiliary.
EVENT_TABLE = """
(VP (VBD went) (PP (TO to) (NP (NN bed))))|(VP (VBN gone) (PP (TO to) (NP (NN bed))))|ins Bett gegangen|sein
(VP (VBD came) (ADVP (RB home)))|(VP (VBN come) (ADVP (RB home)))|nach Hause gekommen|sein
(VP (VBD had) (NP (NN breakfast)))|(VP (VBN had) (NP (NN breakfast)))|gefrühstückt|haben
(VP (VBD went) (PP (TO to) (NP (NN work))))|(VP (VBN gone) (PP (TO to) (NP (NN work))))|zur Arbeit gegangen|sein
(VP (VBD took) (NP (DT a) (NN shower)))|(VP (VBN taken) (NP (DT a) (NN shower)))|geduscht|haben
(VP (VBD left) (NP (DT the) (NN house)))|(VP (VBN left) (NP (DT the) (NN house)))|das Haus verlassen|haben
(VP (VBD had) (NP (NN lunch)))|(VP (VBN had) (NP (NN lunch)))|zu Mittag gegessen|haben
(VP (VBD got) (VP (VBN dressed)))|(VP (VBN got) (VP (VBN dressed)))|sich angezogen|haben
(VP (VBD went) (PP (IN for) (NP (DT a) (NN walk))))|(VP (VBN gone) (PP (IN for) (NP (DT a) (NN walk))))|spazieren gegangen|sein
"""

# What somebody else does meanwhile: english third person progressive | german er-form.
MEANWHILE_TABLE = """
(VP (VBZ is) (VP (VBG cooking)))|kocht
(VP (VBZ is) (VP (VBG sleeping)))|schläft
(VP (VBZ is) (VP (VBG watching) (NP (NN television))))|sieht fern
(VP (VBZ is) (VP (VBG tidying) (PRT (RP up))))|räumt auf
(VP (VBZ is) (VP (VBG working)))|arbeitet
(VP (VBZ is) (VP (VBG doing) (NP (DT the) (NN shopping))))|kauft ein
(VP (VBZ is) (VP (VBG having) (NP (NN breakfast))))|frühstückt
(VP (VBZ is) (VP (VBG taking) (NP (DT a) (NN shower))))|duscht
(VP (VBZ is) (VP (VBG telephoning)))|telefoniert
(VP (VBZ is) (VP (VBG doing) (NP (NN nothing))))|macht nichts
(VP (VBZ is) (VP (VBG laying) (NP (DT the) (NN table))))|deckt den Tisch
(VP (VBZ is) (VP (VBG cutting) (NP (DT the) (NN grass))))|mäht den Rasen
"""

# Main clauses that a dass clause follows: english verb | what follows it | german ich / er / sie.
THAT_TABLE = """
know|_|weiß/weiß/wissen
suspect|_|vermute/vermutet/vermuten
say|_|sage/sagt/sagen
think|_|glaube/glaubt/glauben
be|(ADJP (JJ sure) _)|bin sicher/ist sicher/sind sicher
have|(VP (VBN noticed) _)|habe bemerkt/hat bemerkt/haben bemerkt
have|(VP (VBN heard) _)|habe gehört/hat gehört/haben gehört
claim|_|behaupte/behauptet/behaupten
be|(ADJP (JJ surprised) _)|bin überrascht/ist überrascht/sind überrascht
be|(ADJP (JJ convinced) _)|bin überzeugt/ist überzeugt/sind überzeugt
"""
THAT_IMPERSONAL = """
(NP (PRP it)) (VP (VBZ is) (ADJP (JJ true)) _)|Es stimmt
(NP (PRP it)) (VP (VBZ is) (ADJP (JJ possible)) _)|Es ist möglich
(NP (PRP it)) (VP (VBZ is) (ADJP (JJ strange)) _)|Es ist seltsam
(NP (PRP it)) (VP (VBZ is) (RB not) (ADJP (JJ true)) _)|Es stimmt nicht
(NP (NN everybody)) (VP (VBZ knows) _)|Jeder weiß
(NP (PRP it)) (VP (VBZ is) (ADJP (JJ surprising)) _)|Es ist überraschend
(NP (PRP it)) (VP (VBZ is) (ADJP (JJ clear)) _)|Es ist klar
(NP (NN nobody)) (VP (VBZ believes) _)|Niemand glaubt
"""
WHETHER_TABLE = """
do|(RB not) (VP (VB know) _)|weiß nicht/weiß nicht/wissen nicht
want|(S (VP (TO to) (VP (VB know) _)))|will wissen/will wissen/wollen wissen
be|(RB not) (ADJP (JJ sure) _)|bin nicht sicher/ist nicht sicher/sind nicht sicher
be|(VP (VBG asking) _)|frage/fragt/fragen
"""

# Verbs with a zu infinitive: english verb | what follows it | german ich / er / sie.
INFINITIVE_TABLE = """
be|(VP (VBG trying) _)|versuche/versucht/versuchen
have|(VP (VBN forgotten) _)|habe vergessen/hat vergessen/haben vergessen
have|(VP (VBN decided) _)|habe beschlossen/hat beschlossen/haben beschlossen
have|(VP (VBN promised) _)|habe versprochen/hat versprochen/haben versprochen
be|(VP (VBG planning) _)|habe vor/hat vor/haben vor
have|(NP (NP (DT no) (NN time)) (SBAR _))|habe keine Zeit/hat keine Zeit/haben keine Zeit
"""
INFINITIVE_IMPERSONAL = """
(NP (PRP it)) (VP (VBZ is) (ADJP (JJ important)) _)|Es ist wichtig
(NP (PRP it)) (VP (VBZ is) (ADJP (JJ necessary)) _)|Es ist nötig
(NP (PRP it)) (VP (VBZ is) (RB not) (ADJP (JJ necessary)) _)|Es ist nicht nötig
(NP (PRP it)) (VP (VBZ is) (NP (DT a) (JJ good) (NN idea)) _)|Es ist eine gute Idee
(NP (PRP it)) (VP (VBZ is) (ADJP (RB too) (JJ late) _))|Es ist zu spät
(NP (PRP it)) (VP (VBZ is) (NP (NP (NN time)) (SBAR _)))|Es ist Zeit
"""

# What is said of a person: english third person singular | german er-form.
PERSON_PREDICATES = """
(VP (VBZ is) (NP (PRP$ my) (NN neighbour)))|ist mein Nachbar|m
(VP (VBZ is) (NP (PRP$ my) (NN uncle)))|ist mein Onkel|m
(VP (VBZ is) (NP (PRP$ my) (NN aunt)))|ist meine Tante|f
(VP (VBZ is) (NP (PRP$ my) (NN sister)))|ist meine Schwester|f
(VP (VBZ is) (NP (PRP$ my) (NN brother)))|ist mein Bruder|m
(VP (VBZ lives) (PP (IN in) (NP (PRP$ our) (NN street))))|wohnt in unserer Straße|*
(VP (VBZ lives) (PP (IN near) (NP (DT the) (NN station))))|wohnt in der Nähe des Bahnhofs|*
(VP (VBZ has) (NP (CD three) (NNS children)))|hat drei Kinder|*
(VP (VBZ works) (NP (DT a) (NN lot)))|arbeitet viel|*
(VP (VBZ has) (NP (DT a) (JJ big) (NN house)))|hat ein großes Haus|*
(VP (VBZ speaks) (NP (CD three) (NNS languages)))|spricht drei Sprachen|*
"""

WEATHER_TABLE = """
rain|raining|rained|regnen|regnet|geregnet
snow|snowing|snowed|schneien|schneit|geschneit
hail|hailing|hailed|hageln|hagelt|gehagelt
"""
WEATHER_ADJECTIVES = """
(ADJP (RB very) (JJ cold))|sehr kalt
(ADJP (RB very) (JJ warm))|sehr warm
(ADJP (JJ windy))|windig
(ADJP (JJ foggy))|neblig
(ADJP (JJ sunny))|sonnig
(ADJP (JJ cloudy))|bewölkt
(ADJP (RB too) (JJ hot))|zu heiß
(ADJP (RB quite) (JJ cool))|ziemlich kühl
"""
